"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from tensorkeep.errors import UnsupportedError

Target = Annotated[
    str,
    typer.Argument(
        metavar="PATH", help="A file of tensors (.safetensors, .pt …), a directory, or an index.", show_default=False
    ),
]

Destination = Annotated[
    str,
    typer.Argument(metavar="DIRECTORY", help="Where to write; created if its parent exists.", show_default=False),
]

Variant = Annotated[
    str | None,
    typer.Option("--variant", metavar="NAME", help="Which checkpoint in a directory, such as fp16."),
]

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]

Select = Annotated[
    list[str] | None, typer.Option("--select", metavar="GLOB", help="Only tensors whose full names match.")
]

Drop = Annotated[
    list[str] | None, typer.Option("--drop", metavar="GLOB", help="Without tensors whose full names match.")
]

Rename = Annotated[list[str] | None, typer.Option("--rename", metavar="OLD=NEW", help="Rename one tensor.")]

StripPrefix = Annotated[
    str | None, typer.Option("--strip-prefix", metavar="TEXT", help="Remove this prefix from names.")
]

Cast = Annotated[
    str | None, typer.Option("--cast", metavar="DTYPE", help="Convert floating-point tensors, such as to bf16.")
]

MaxShardSize = Annotated[
    str,
    typer.Option("--max-shard-size", metavar="SIZE", help="Bytes of tensors in a shard, such as 5GB or 500MiB."),
]

Balance = Annotated[
    bool, typer.Option("--balance", help="Make shards as equal in size as the order of tensors allows.")
]

SplitLarge = Annotated[
    bool,
    typer.Option(
        "--split-large", help="Cut tensors larger than a shard into rows; only tensorkeep joins them again."
    ),
]

Sha256 = Annotated[
    bool, typer.Option("--sha256", help="Record the SHA-256 of each shard, its id in Git LFS and on the Hub.")
]

NewVariant = Annotated[
    str | None,
    typer.Option(
        "--output-variant",
        metavar="NAME",
        help="A variant in the new file names, such as fp16 in model.fp16.safetensors.",
    ),
]


def size_of(text: str) -> int | str:
    """Return an int for a number without a unit: a shell has no ints."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else text


def pairs_of(texts: list[str] | None, option: str, form: str) -> dict[str, str]:
    """Split each text at its first equals sign."""
    pairs: dict[str, str] = {}
    for text in texts or ():
        left, sign, right = text.partition("=")
        if not sign or not left:
            raise typer.BadParameter(f"expected {form}, found {text!r}", param_hint=f"'{option}'")
        if left in pairs:
            raise typer.BadParameter(f"{left!r} is given twice", param_hint=f"'{option}'")
        pairs[left] = right
    return pairs


def share_of(text: str) -> float:
    """Parse a fraction such as 10% or 0.1."""
    number = text.strip().removesuffix("%")
    try:
        share = float(number)
    except ValueError:
        raise UnsupportedError("not a share", expected="such as 10% or 0.1", found=repr(text)) from None
    return share / 100 if text.strip().endswith("%") else share

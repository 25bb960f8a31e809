"""Arguments and options that several commands share."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer

from tensorkeep.cli.inputs._completion import floats, tensor_names

Target = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="A file of tensors (.safetensors, .pt, .gguf …), a directory, or an index.",
        show_default=False,
    ),
]

Rewritten = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="A safetensors file, a directory, or an index; `tensorkeep convert` takes pickles.",
        show_default=False,
    ),
]

Destination = Annotated[
    str,
    typer.Argument(
        metavar="DIRECTORY", help="Where the new one goes; created if its parent exists.", show_default=False
    ),
]

Output = Annotated[
    str,
    typer.Option("--output", "-o", metavar="DIRECTORY", help="Where the result goes; created if its parent exists."),
]

Variant = Annotated[
    str | None,
    typer.Option("--variant", metavar="NAME", help="Which checkpoint of a directory, such as fp16."),
]

Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="LIBRARY",
        help="Read the files with this library, such as tensorstore; only if you trust them.",
    ),
]

Dtypes = Annotated[
    list[str] | None,
    typer.Option(
        "--dtype",
        metavar="NAME=DTYPE",
        help="The dtype of a tensor, or of all that match a pattern, if the file does not say it: '*=bf16'.",
        show_default=False,
    ),
]

TrustedBy = Annotated[
    str | None,
    typer.Option(
        "--trust",
        metavar="KEY",
        help="The public key or policy (.toml) that says whose signatures must cover what is read.",
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document, for programs.")]

AsSarif = Annotated[bool, typer.Option("--sarif", help="One SARIF 2.1.0 document, for code scanning.")]

Select = Annotated[
    list[str] | None,
    typer.Option(
        "--select", metavar="GLOB", help="Only tensors whose full names match.", autocompletion=tensor_names
    ),
]

Drop = Annotated[
    list[str] | None,
    typer.Option(
        "--drop", metavar="GLOB", help="Leave out tensors whose full names match.", autocompletion=tensor_names
    ),
]

Rename = Annotated[
    list[str] | None, typer.Option("--rename", metavar="OLD=NEW", help="Give one tensor another name.")
]

StripPrefix = Annotated[
    str | None, typer.Option("--strip-prefix", metavar="TEXT", help="Remove this from the beginning of names.")
]

Cast = Annotated[
    str | None,
    typer.Option(
        "--cast",
        metavar="DTYPE",
        help="Convert floating-point tensors, such as to bf16.",
        autocompletion=floats,
    ),
]

Stochastic = Annotated[
    int | None,
    typer.Option(
        "--stochastic",
        metavar="SEED",
        help="Round stochastically in --cast, without bias; equal seeds give equal numbers.",
    ),
]

Keys = Annotated[
    str | None,
    typer.Option("--keys", metavar="FILE", help="A key map (.toml) that renames, joins and splits tensors."),
]

KeysBack = Annotated[bool, typer.Option("--keys-back", help="Apply the key map in reverse, from right to left.")]

Dequantize = Annotated[
    str | None,
    typer.Option(
        "--dequantize",
        metavar="DTYPE",
        help="Write the numbers of quantized tensors, such as in bf16.",
        autocompletion=floats,
    ),
]

Align = Annotated[
    int,
    typer.Option("--align", metavar="BYTES", help="Start tensors at multiples of this: 64 for JAX and TensorFlow."),
]
Order = Annotated[
    list[str] | None,
    typer.Option(
        "--order",
        metavar="PATTERN",
        help="Begin each file with the tensors whose full names match, in this order.",
        autocompletion=tensor_names,
    ),
]
MaxShardSize = Annotated[
    str,
    typer.Option("--max-shard-size", metavar="SIZE", help="Bytes of tensors in a shard, such as 5GB or 500MiB."),
]

Balance = Annotated[bool, typer.Option("--balance", help="Make shards as equal as the order of tensors allows.")]

SplitLarge = Annotated[
    bool, typer.Option("--split-large", help="Cut tensors larger than a shard by rows; only tensorkeep joins them.")
]

Sha256 = Annotated[
    bool, typer.Option("--sha256", help="Record the SHA-256 of each shard, by which Git LFS and the Hub know it.")
]

Provenance = Annotated[
    bool, typer.Option("--provenance", help="Also record where the checkpoint came from, as an in-toto statement.")
]

Force = Annotated[
    bool,
    typer.Option(
        "--force",
        "--overwrite",
        help="Replace what is at the destination without asking; other files there stay.",
    ),
]

NewVariant = Annotated[
    str | None,
    typer.Option(
        "--output-variant",
        metavar="NAME",
        help="Part of the new file names, such as fp16 in model.fp16.safetensors.",
    ),
]


def size_of(text: str) -> int | str:
    """Return bytes for a number without a unit, which a shell cannot give otherwise."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else text


def pairs_of(texts: list[str] | None, option: str, form: str) -> dict[str, str]:
    """Split texts at their first equals sign."""
    pairs: dict[str, str] = {}
    for text in texts or ():
        left, sign, right = text.partition("=")
        if not sign or not left:
            raise typer.BadParameter(f"expected {form}, found {text!r}", param_hint=f"'{option}'")
        if left in pairs:
            raise typer.BadParameter(f"{left!r} is given twice", param_hint=f"'{option}'")
        pairs[left] = right
    return pairs


def dtypes_of(texts: list[str] | None) -> dict[str, str]:
    """Return the dtypes that `--dtype` gives, by name or pattern."""
    return pairs_of(texts, "--dtype", "NAME=DTYPE")


def share_of(text: str, option: str) -> float:
    """Read a share of what an option is about, from 0 to 1."""
    number = text.strip().removesuffix("%")
    with suppress(ValueError):
        share = float(number) / (100 if number != text.strip() else 1)
        if 0 <= share <= 1:
            return share
    raise typer.BadParameter(f"expected a share such as 10% or 0.1, found {text!r}", param_hint=f"'{option}'")


def require_one_form(*, as_json: bool, sarif: bool) -> None:
    """Refuse both forms of output for programs at once."""
    if as_json and sarif:
        raise typer.BadParameter("it does not apply to --sarif", param_hint="'--json'")

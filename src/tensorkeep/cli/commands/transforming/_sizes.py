"""`tensorkeep transform vocabulary`, `drop-layers` and `sparsify`: models with more or fewer numbers."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated

import typer

import tensorkeep
from tensorkeep.cli.commands.transforming._transformed import write_transformed
from tensorkeep.cli.inputs import Rewritten, Saving, tensor_names

_Chosen = Annotated[
    list[str] | None,
    typer.Option(
        "--select",
        "--names",
        metavar="GLOB",
        help="The tensors to change, by their full names; the others stay as they are.",
        autocompletion=tensor_names,
    ),
]


def vocabulary(
    source: Rewritten,
    *,
    size: Annotated[int | None, typer.Option("--size", metavar="N", help="The new number of tokens.")] = None,
    multiple_of: Annotated[
        int | None, typer.Option("--multiple-of", metavar="N", help="Round the number up, such as to 64.")
    ] = None,
    mean: Annotated[bool, typer.Option("--mean", help="New rows are the mean of the others, not zeros.")] = False,
    names: _Chosen = None,
    saving: Saving,
) -> None:
    """Change the number of tokens of the embeddings and the head.

    Rows are added or cut at the end; the others stay as they are. `vocab_size` in config.json changes too.
    """
    resize = partial(
        tensorkeep.transforms.resize_vocabulary,
        size=size,
        multiple_of=multiple_of,
        rows="mean" if mean else "zeros",
        names=names,
    )
    write_transformed(source, resize, saving, tensorkeep.transforms.vocabulary_in_config(names))


def drop_layers(
    source: Rewritten,
    *,
    layers: Annotated[str, typer.Option("--layers", metavar="N,N-N...", help="The layers to drop, such as 3,8-11.")],
    stack: Annotated[
        str | None,
        typer.Option(
            "--stack", metavar="NAME", help="The name before the numbers, if there are several stacks of layers."
        ),
    ] = None,
    saving: Saving,
) -> None:
    """Leave out layers, and renumber the others.

    The number of layers in config.json changes too.
    """
    numbers = _numbers_of(layers)
    drop = partial(tensorkeep.transforms.drop_layers, layers=numbers, stack=stack)
    write_transformed(source, drop, saving, tensorkeep.transforms.layers_in_config(numbers, stack))


def sparsify(
    source: Rewritten,
    *,
    keep: Annotated[
        str | None, typer.Option("--keep", metavar="N:M", help="Keep the largest N of M neighbors, such as 2:4.")
    ] = None,
    zeros: Annotated[
        float | None, typer.Option("--zeros", metavar="X", help="The share of each tensor to set to zero.")
    ] = None,
    names: _Chosen = None,
    saving: Saving,
) -> None:
    """Set the smallest weights to zero.

    Without --select, this applies to all matrices except embeddings and the head. Other tensors stay as they are.
    """
    write_transformed(source, partial(tensorkeep.transforms.sparsify, keep=keep, zeros=zeros, names=names), saving)


def _numbers_of(text: str) -> list[int]:
    """Read numbers and ranges."""
    numbers: set[int] = set()
    for word in text.split(","):
        found = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", word.strip(), re.ASCII)
        if found is None:
            raise typer.BadParameter(f"expected numbers such as 3,8-11, found {text!r}", param_hint="'--layers'")
        numbers.update(range(int(found[1]), int(found[2] or found[1]) + 1))
    return sorted(numbers)

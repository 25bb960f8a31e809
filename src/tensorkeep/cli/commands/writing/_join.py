"""`tensorkeep join`: the tensors of several checkpoints in one."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

import tensorkeep
from tensorkeep.cli.inputs import (
    Align,
    AsJson,
    Balance,
    Cast,
    Destination,
    Drop,
    Force,
    MaxShardSize,
    NewVariant,
    Order,
    Select,
    Sha256,
    SplitLarge,
    Variant,
    size_of,
)
from tensorkeep.cli.reports import read_written
from tensorkeep.cli.terminal import Writing, show_result


def join(
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE...", help="Files, directories or indexes.", show_default=False)
    ],
    directory: Destination,
    *,
    max_shard_size: MaxShardSize = "5GB",
    balance: Balance = False,
    split_large: SplitLarge = False,
    select: Select = None,
    drop: Drop = None,
    cast: Cast = None,
    sha256: Sha256 = False,
    align: Align = 8,
    order: Order = None,
    variant: Variant = None,
    output_variant: NewVariant = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Put the tensors of several checkpoints into one.

    Nothing is computed; 'tensorkeep merge' does that. No two may have a tensor with the same name. Tensors are
    copied from file to file and are never all in memory. Whenever this is stopped, the directory holds the new
    checkpoint or what it held before.
    """
    _refuse_one(sources)
    write = partial(
        tensorkeep.join,
        sources,
        directory,
        max_shard_size=size_of(max_shard_size),
        balance=balance,
        split_large=split_large,
        variant=variant,
        output_variant=output_variant,
        select=select,
        drop=drop,
        cast=cast,
        sha256=sha256,
        align=align,
        order=order,
    )
    writing = Writing(directory, force=force, asks=not as_json)
    writing.run_shown("writing", write)
    written = read_written(directory, output_variant, writing.seconds, writing.replaced)
    show_result(written, as_json=as_json)


def _refuse_one(sources: list[str]) -> None:
    """Refuse a single source: without the directory, the last source would be written to."""
    if len(sources) < 2:
        raise typer.BadParameter("at least two sources, and then the directory to write to", param_hint="'SOURCE...'")

"""`tensorkeep merge average`, `ema` and `slerp`: merges of models as they are."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

import tensorkeep
from tensorkeep.cli.commands.merging._merged import write_merged
from tensorkeep.cli.inputs import (
    AsJson,
    Drop,
    Force,
    Integers,
    MaxShardSize,
    Models,
    Output,
    Select,
    Sha256,
    Weights,
    integers_of,
    weights_of,
)


def average(
    models: Models,
    *,
    output: Output,
    weights: Weights = None,
    integers: Integers = "equal",
    select: Select = None,
    drop: Drop = None,
    max_shard_size: MaxShardSize = "5GB",
    sha256: Sha256 = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Average models number by number.

    Numbers are computed in F32 (F64 if a model has it), and rounded once to the dtype of the first model. Models are
    never all in memory. Whenever this is stopped, the directory holds the new checkpoint or what it held before.
    """
    write_merged(
        partial(tensorkeep.merging.average, weights=weights_of(weights), integers=integers_of(integers)),
        models,
        output,
        select=select,
        drop=drop,
        max_shard_size=max_shard_size,
        sha256=sha256,
        force=force,
        as_json=as_json,
    )


def ema(
    steps: Annotated[
        list[str], typer.Argument(metavar="STEP...", help="Steps of a run, oldest first.", show_default=False)
    ],
    *,
    output: Output,
    decay: Annotated[
        float, typer.Option("--decay", metavar="X", help="How much a step counts, compared with the next: below 1.")
    ],
    integers: Integers = "equal",
    select: Select = None,
    drop: Drop = None,
    max_shard_size: MaxShardSize = "5GB",
    sha256: Sha256 = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Average the steps of a run, later ones more: an exponential moving average."""
    write_merged(
        partial(tensorkeep.merging.ema, decay=decay, integers=integers_of(integers)),
        steps,
        output,
        select=select,
        drop=drop,
        max_shard_size=max_shard_size,
        sha256=sha256,
        force=force,
        as_json=as_json,
    )


def slerp(
    first: Annotated[str, typer.Argument(metavar="A", help="The model at 0.", show_default=False)],
    second: Annotated[str, typer.Argument(metavar="B", help="The model at 1.", show_default=False)],
    *,
    output: Output,
    t: Annotated[float, typer.Option("--t", metavar="X", help="The position between the models, from 0 to 1.")],
    select: Select = None,
    drop: Drop = None,
    max_shard_size: MaxShardSize = "5GB",
    sha256: Sha256 = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Interpolate between two models along the arc between their directions."""
    write_merged(
        partial(tensorkeep.merging.slerp, t=t),
        [first, second],
        output,
        select=select,
        drop=drop,
        max_shard_size=max_shard_size,
        sha256=sha256,
        force=force,
        as_json=as_json,
    )

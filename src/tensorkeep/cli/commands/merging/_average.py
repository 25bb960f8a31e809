"""`tensorkeep merge average`, `ema` and `slerp`: merges of models as they are."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

import tensorkeep
from tensorkeep.cli.commands.merging._merged import write_merged
from tensorkeep.cli.inputs import (
    Chosen,
    Integers,
    Models,
    Saving,
    Weights,
    integers_of,
    weights_of,
)


def average(
    models: Models,
    *,
    weights: Weights = None,
    integers: Integers = "equal",
    chosen: Chosen,
    saving: Saving,
) -> None:
    """Average models number by number.

    Numbers are computed in F32 (F64 if a model has it), and rounded once to the dtype of the first model. Models are
    never all in memory. Whenever this is stopped, the directory holds the new checkpoint or what it held before.
    """
    write_merged(
        partial(tensorkeep.merging.average, weights=weights_of(weights), integers=integers_of(integers)),
        models,
        saving,
        chosen,
    )


def ema(
    steps: Annotated[
        list[str], typer.Argument(metavar="STEP...", help="Steps of a run, oldest first.", show_default=False)
    ],
    *,
    decay: Annotated[
        float, typer.Option("--decay", metavar="X", help="How much a step counts, compared with the next: below 1.")
    ],
    integers: Integers = "equal",
    chosen: Chosen,
    saving: Saving,
) -> None:
    """Average the steps of a run, later ones more: an exponential moving average."""
    write_merged(
        partial(tensorkeep.merging.ema, decay=decay, integers=integers_of(integers)),
        steps,
        saving,
        chosen,
    )


def slerp(
    first: Annotated[str, typer.Argument(metavar="A", help="The model at 0.", show_default=False)],
    second: Annotated[str, typer.Argument(metavar="B", help="The model at 1.", show_default=False)],
    *,
    t: Annotated[
        float, typer.Option("--t", metavar="X", help="The position between the models, from 0 (A) to 1 (B).")
    ],
    chosen: Chosen,
    saving: Saving,
) -> None:
    """Interpolate between two models along the arc between their directions."""
    write_merged(
        partial(tensorkeep.merging.slerp, t=t),
        [first, second],
        saving,
        chosen,
    )

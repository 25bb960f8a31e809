"""`tensorkeep merge task-arithmetic`, `ties`, `dare` and `dare-ties`: merges of what training changed."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

import tensorkeep
from tensorkeep.cli.commands.merging._merged import write_merged
from tensorkeep.cli.inputs import (
    BaseModel,
    Chosen,
    Models,
    Saving,
    Scale,
    Weights,
    weights_of,
)


def task_arithmetic(
    base: BaseModel,
    models: Models,
    *,
    weights: Weights = None,
    scale: Scale = 1.0,
    chosen: Chosen,
    saving: Saving,
) -> None:
    """Add the weighted changes of models to their base; a negative weight unlearns one."""
    write_merged(
        partial(tensorkeep.merging.task_arithmetic, weights=weights_of(weights), scale=scale),
        [base, *models],
        saving,
        chosen,
    )


def ties(
    base: BaseModel,
    models: Models,
    *,
    density: Annotated[
        float, typer.Option("--density", metavar="X", help="The share of changes to keep, the largest: up to 1.")
    ],
    weights: Weights = None,
    scale: Scale = 1.0,
    chosen: Chosen,
    saving: Saving,
) -> None:
    """Add the largest changes of models to their base, where they agree on the sign."""
    write_merged(
        partial(tensorkeep.merging.ties, density=density, weights=weights_of(weights), scale=scale),
        [base, *models],
        saving,
        chosen,
    )


Probability = Annotated[
    float, typer.Option("--density", metavar="X", help="The probability that a change is kept: up to 1.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Decides which changes are kept.")]


def dare(
    base: BaseModel,
    models: Models,
    *,
    density: Probability,
    seed: Seed,
    weights: Weights = None,
    scale: Scale = 1.0,
    chosen: Chosen,
    saving: Saving,
) -> None:
    """Add a random part of the changes of models to their base, scaled up."""
    write_merged(
        partial(tensorkeep.merging.dare, density=density, seed=seed, weights=weights_of(weights), scale=scale),
        [base, *models],
        saving,
        chosen,
    )


def dare_ties(
    base: BaseModel,
    models: Models,
    *,
    density: Probability,
    seed: Seed,
    weights: Weights = None,
    scale: Scale = 1.0,
    chosen: Chosen,
    saving: Saving,
) -> None:
    """Add a random part of the changes of models to their base, scaled up, where they agree on the sign."""
    write_merged(
        partial(tensorkeep.merging.dare_ties, density=density, seed=seed, weights=weights_of(weights), scale=scale),
        [base, *models],
        saving,
        chosen,
    )

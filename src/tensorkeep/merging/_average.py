"""Averages of models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import fsum, isfinite

import numpy as np

from tensorkeep.merging._computing import Integers, Numbers, merged
from tensorkeep.tensors import LazyTensors, TensorView


def average(*models: LazyTensors, weights: Sequence[float] | None = None, integers: Integers = "equal") -> TensorView:
    """Average models number by number: the mean, or a weighted mean.

        with tensorkeep.open("run/10") as a, tensorkeep.open("run/20") as b:
            tensorkeep.save_checkpoint(average(a, b), "averaged")

    The numbers equal those that mergekit's `linear` gives. Wortsman et al., "Model soups", 2022 (arXiv:2203.05482).

    Args:
        *models: Open files, checkpoints or views with the same names and shapes; at least one.
        weights: One for each model; they are divided by their sum. Equal weights if None.
        integers: How to merge integers and booleans, such as counters. `"equal"`: they must be equal in all models,
            which is checked when they are read. `"first"`, `"last"`: that model's are taken.

    Returns:
        A view with the dtypes and metadata of the first model. What is read is computed in F32 (F64 if a model has
        it).

    Raises:
        TensorNotFoundError: If a name is not in all models (also a KeyError).
        RefusedError: If a shape differs, or the dtype of integers, or if a tensor is quantized.
        DtypeError: If a dtype is unknown, or packs elements into bytes (F4, F6).
        TypeError: If there are no models.
        ValueError: If the number of weights is wrong, one is not finite, or their sum is 0.
    """
    shares = shares_of(weights, len(models))
    merge = mean if len(set(shares)) == 1 else partial(weighted_sum, shares)
    return merged(lambda _: merge, models, "elements", integers)


def ema(*models: LazyTensors, decay: float, integers: Integers = "equal") -> TensorView:
    """Average the steps of a run, each counting `decay` times as much as the next: an exponential moving average.

    This computes `average = decay * average + (1 - decay) * step`, starting from the first step.

    Args:
        *models: The steps, oldest first: open files, checkpoints or views with the same names and shapes.
        decay: At least 0 and less than 1.
        integers: How to merge integers and booleans, as for `average`.

    Returns:
        A view like `average`'s, with the dtypes and metadata of the first step.

    Raises:
        TensorNotFoundError: If a name is not in all steps (also a KeyError).
        RefusedError: If a shape differs, or the dtype of integers, or if a tensor is quantized.
        DtypeError: If a dtype is unknown, or packs elements into bytes (F4, F6).
        TypeError: If there are no steps.
        ValueError: If `decay` is out of range.
    """
    if not models:
        raise TypeError("there is nothing to average: give the steps of a run")
    if not 0 <= decay < 1:
        raise ValueError(f"decay must be at least 0 and less than 1, not {decay}")
    later = [(1 - decay) * decay**age for age in reversed(range(len(models) - 1))]
    return average(*models, weights=[decay ** (len(models) - 1), *later], integers=integers)


def shares_of(weights: Sequence[float] | None, n_models: int) -> list[float]:
    """Return weights whose sum is 1."""
    given = weights_for(weights, n_models)
    largest = max(map(abs, given), default=0) or 1.0
    parts = [weight / largest for weight in given]  # their sum is finite
    total = fsum(parts)
    if n_models and not total:
        raise ValueError("the sum of the weights is 0: they cannot be divided by it")
    return [part / total for part in parts]


def weights_for(weights: Sequence[float] | None, n_models: int) -> list[float]:
    """Return one weight for each model, 1 if none are given."""
    given = [1.0] * n_models if weights is None else [float(weight) for weight in weights]
    if len(given) != n_models:
        raise ValueError(f"{n_models} models need as many weights, not {len(given)}")
    for weight in given:
        check_finite("a weight", weight)
    return given


def check_finite(what: str, value: float) -> None:
    """Refuse a factor that would make every number infinite or NaN."""
    if not isfinite(value):
        raise ValueError(f"{what} must be a finite number, not {value}")


def mean(*models: Numbers) -> Numbers:
    """Return the mean of numbers; the models change if a sum is too large for their dtype."""
    numbers: Numbers = sum(models[1:], models[0]) / len(models)
    is_finite = np.isfinite(numbers)
    if not is_finite.all():  # such as the mean of two masks of -3e38
        np.copyto(numbers, weighted_sum([1 / len(models)] * len(models), *models), where=~is_finite)
    return numbers


def weighted_sum(weights: Sequence[float], *models: Numbers) -> Numbers:
    """Return the sum of each model's numbers times its weight, in the memory of the first; the others change too."""
    for numbers, weight in zip(models, weights, strict=True):
        np.multiply(numbers, weight, out=numbers)
    return summed_in_place(*models)


def summed_in_place(total: Numbers, *others: Numbers) -> Numbers:
    """Add the others to the first."""
    for numbers in others:
        total += numbers
    return total

"""Merges of what training changed: the differences between models and the base model that they began from."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import index
from typing import Final

import numpy as np

from tensorkeep.merging._average import check_finite, summed_in_place, weights_for
from tensorkeep.merging._computing import Numbers, merged
from tensorkeep.tensors import LazyTensors, TensorView
from tensorkeep.texts import same_arguments_as

_MIN_DROPPED_DENSITY: Final = 0.0001
"""Random numbers in F32 are multiples of 2**-24, which would change smaller probabilities by more than 0.1 %."""


def task_arithmetic(
    base: LazyTensors, *models: LazyTensors, weights: Sequence[float] | None = None, scale: float = 1.0
) -> TensorView:
    """Add to a base model the weighted changes of other models; a negative weight unlearns a change.

    The numbers equal mergekit's. Ilharco et al., "Editing models with task arithmetic", 2023 (arXiv:2212.04089).

    Args:
        base: The model that the others were trained from: an open file, checkpoint or view.
        *models: The others, with the same names and shapes.
        weights: One for each of the others, used as they are; 1 each if None.
        scale: A factor for the sum.

    Returns:
        A view like `average`'s, with the dtypes and metadata of the base model.

    Raises:
        TensorNotFoundError: If a name is not in all models (also a KeyError).
        RefusedError: If a shape differs, or a tensor is quantized.
        DtypeError: If a dtype is unknown, or packs elements into bytes (F4, F6).
        ValueError: If the number of weights is wrong, or a factor is not finite.
    """
    check_finite("scale", scale)
    factors = [weight * scale for weight in weights_for(weights, len(models))]
    return merged(lambda _: partial(_summed, factors), (base, *models), "elements")


def ties(
    base: LazyTensors,
    *models: LazyTensors,
    density: float,
    weights: Sequence[float] | None = None,
    scale: float = 1.0,
) -> TensorView:
    """Merge models so that small and conflicting changes do not blur the others (TIES: trim, elect sign, merge).

    Of each model's differences from the base, the largest in magnitude are kept. For each number, the sign of the
    weighted sum is elected, and the differences with this sign are averaged with their weights. The numbers equal
    mergekit's. Yadav et al., "TIES-Merging", 2023 (arXiv:2306.01708).

    Args:
        base: The model that the others were trained from: an open file, checkpoint or view.
        *models: The others, with the same names and shapes.
        density: The share of each tensor's differences that is kept, more than 0 and at most 1.
        weights: One for each of the others; 1 each if None.
        scale: A factor for the merged differences.

    Returns:
        A view like `average`'s, with the dtypes and metadata of the base model. Even a slice computes whole tensors.

    Raises:
        TensorNotFoundError: If a name is not in all models (also a KeyError).
        RefusedError: If a shape differs, or a tensor is quantized.
        DtypeError: If a dtype is unknown, or packs elements into bytes (F4, F6).
        ValueError: If `density` is out of range, the number of weights is wrong, or a factor is not finite.
    """
    if not 0 < density <= 1:
        raise ValueError(f"density must be more than 0 and at most 1, not {density}")
    check_finite("scale", scale)
    given = weights_for(weights, len(models))
    return merged(lambda _: partial(_trimmed_and_elected, density, given, scale), (base, *models), "tensor")


def dare(
    base: LazyTensors,
    *models: LazyTensors,
    density: float,
    seed: int,
    weights: Sequence[float] | None = None,
    scale: float = 1.0,
) -> TensorView:
    """Merge models, with a random part of their changes dropped and the rest scaled up (DARE: drop and rescale).

    Equal seeds give equal numbers, whichever tensors are read and in whichever order. Yu et al., "Language models are
    super Mario", 2024 (arXiv:2311.03099).

    Args:
        base: The model that the others were trained from: an open file, checkpoint or view.
        *models: The others, with the same names and shapes.
        density: The probability that a difference is kept, at least 0.0001 and at most 1. Kept differences are
            divided by it.
        seed: Decides which differences are dropped; at least 0.
        weights: One for each of the others, used as they are; 1 each if None.
        scale: A factor for the sum.

    Returns:
        A view like `average`'s, with the dtypes and metadata of the base model. Even a slice computes whole tensors.

    Raises:
        TensorNotFoundError: If a name is not in all models (also a KeyError).
        RefusedError: If a shape differs, or a tensor is quantized.
        DtypeError: If a dtype is unknown, or packs elements into bytes (F4, F6).
        TypeError: If `seed` is not an integer.
        ValueError: If `density` or `seed` is out of range, the number of weights is wrong, or a factor is not finite.
    """
    return _with_drops(_dropped, base, models, density, seed, weights, scale)


@same_arguments_as(dare)
def dare_ties(  # noqa: D417 - the decorator explains the others
    base: LazyTensors,
    *models: LazyTensors,
    density: float,
    seed: int,
    weights: Sequence[float] | None = None,
    scale: float = 1.0,
) -> TensorView:
    """Merge models as `dare` does, and add only changes that have the elected sign, as `ties` does.

    For each number, the sign of the weighted sum of the changes that were kept is elected, and the changes with this
    sign are added with their weights: they are not averaged. This is mergekit's method of the same name.
    All other arguments are as for `dare`.

    Args:
        seed: Decides which differences are dropped, the same ones as in `dare`; at least 0.

    Returns:
        A view like `average`'s, with the dtypes and metadata of the base model. Even a slice computes whole tensors.

    Raises:
        TensorNotFoundError: If a name is not in all models (also a KeyError).
        RefusedError: If a shape differs, or a tensor is quantized.
        DtypeError: If a dtype is unknown, or packs elements into bytes (F4, F6).
        TypeError: If `seed` is not an integer.
        ValueError: If `density` or `seed` is out of range, the number of weights is wrong, or a factor is not finite.
    """
    return _with_drops(_dropped_and_elected, base, models, density, seed, weights, scale)


def _with_drops(
    merge: Callable[..., Numbers],
    base: LazyTensors,
    models: Sequence[LazyTensors],
    density: float,
    seed: int,
    weights: Sequence[float] | None,
    scale: float,
) -> TensorView:
    """Merge by a function that drops changes at random, by the seed and the name of each tensor alone."""
    if not _MIN_DROPPED_DENSITY <= density <= 1:
        raise ValueError(f"density must be at least {_MIN_DROPPED_DENSITY} and at most 1, not {density}")
    whole = index(seed)
    if whole < 0:
        raise ValueError(f"seed must be at least 0, not {whole}")
    check_finite("scale", scale)
    given = weights_for(weights, len(models))

    def merge_of(name: str) -> partial[Numbers]:
        return partial(merge, density, (whole, zlib.crc32(name.encode(errors="surrogatepass"))), given, scale)

    return merged(merge_of, (base, *models), "tensor")


def _summed(factors: Sequence[float], base: Numbers, *models: Numbers) -> Numbers:
    for numbers, factor in zip(models, factors, strict=True):
        np.subtract(numbers, base, out=numbers)
        np.multiply(numbers, factor, out=numbers)
    return summed_in_place(base, *models)


def _trimmed_and_elected(
    density: float, weights: Sequence[float], scale: float, base: Numbers, *models: Numbers
) -> Numbers:
    deltas = [numbers - base for numbers in models]
    is_broken = np.any([np.isnan(delta) for delta in deltas], axis=0)
    deltas = [_trimmed(delta, density) * weight for delta, weight in zip(deltas, weights, strict=True)]
    total, divisor = np.zeros_like(base), np.zeros_like(base)
    for delta, is_elected, weight in zip(deltas, _elected(deltas), weights, strict=True):
        total += np.where(is_elected, delta, 0)
        divisor += is_elected * base.dtype.type(weight)
    divisor[divisor == 0] = 1
    merged_numbers: Numbers = np.asarray(base + total / divisor * scale)  # NumPy gives a number for 0 dimensions
    merged_numbers[is_broken] = np.nan  # comparisons with NaN are false, which would hide it
    return merged_numbers


def _elected(deltas: Sequence[Numbers]) -> Iterator[Numbers]:
    """Say of each weighted difference whether it has the sign of their sum."""
    is_positive = sum(deltas, np.zeros_like(deltas[0])) >= 0
    return (np.where(is_positive, delta > 0, delta < 0) for delta in deltas)


def _trimmed(delta: Numbers, density: float) -> Numbers:
    """Return differences with all but the largest in magnitude, at least one, set to zero."""
    n_kept = max(1, int(density * delta.size))
    if n_kept >= delta.size:
        return delta
    flat = delta.reshape(-1)
    sizes = np.abs(flat)
    smallest = np.partition(sizes, len(sizes) - n_kept)[len(sizes) - n_kept]
    is_kept = sizes > smallest
    equal = np.flatnonzero(sizes == smallest)
    is_kept[equal[: n_kept - np.count_nonzero(is_kept)]] = True
    flat[~is_kept] = 0
    return delta


def _dropped(
    density: float, seed: tuple[int, int], weights: Sequence[float], scale: float, base: Numbers, *models: Numbers
) -> Numbers:
    random = np.random.default_rng(seed)
    total = base.copy()
    for numbers, weight in zip(models, weights, strict=True):
        total += _kept(random, density, numbers - base) * (weight * scale / density)
    return total


def _dropped_and_elected(
    density: float, seed: tuple[int, int], weights: Sequence[float], scale: float, base: Numbers, *models: Numbers
) -> Numbers:
    random = np.random.default_rng(seed)
    deltas = [
        np.asarray(_kept(random, density, numbers - base) * (weight / density))
        for numbers, weight in zip(models, weights, strict=True)
    ]
    total = np.zeros_like(base)
    for delta, is_elected in zip(deltas, _elected(deltas), strict=True):
        total += np.where(is_elected | np.isnan(delta), delta, 0)  # no NaN has a sign, and none may be hidden
    return np.asarray(base + total * scale)


def _kept(random: np.random.Generator, density: float, delta: Numbers) -> Numbers:
    """Return differences with a random part set to zero."""
    return np.where(random.random(delta.shape, np.float32) < density, delta, 0)

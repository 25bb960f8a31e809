"""Parts of a tensor to be drawn: heatmaps, lines and tables of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tensorkeep.checkpoint import change_between
from tensorkeep.tensors import LazyTensor
from tensorkeep.viewing._json import number, packed
from tensorkeep.viewing.answers._reading import Numbers, as_numbers, is_cheap, numeric, refuse_costly
from tensorkeep.viewing.answers._window import Window, range_members

_SHARE_IN_SCALE: Final = 0.99
"""Share of the magnitudes that colors tell apart."""

_FEWER_ROWS: Final = (1, 4, 16)
"""Divisors of the number of rows in a sample; of wide tensors, whole rows must be read for a few columns."""


def heatmap(tensors: Sequence[LazyTensor], window: Window, height: int, width: int) -> dict[str, Any]:
    """Return a sample of a plane; of two tensors, their difference."""
    tensors = [numeric(lazy) for lazy in tensors]
    samples = (window.sampled(max(1, height // fewer), width) for fewer in _FEWER_ROWS)
    cheap = next((each for each in samples if all(is_cheap(lazy, each.index) for lazy in tensors)), None)
    shown = window.corner(height, width) if cheap is None else cheap
    matrix = shown.matrix(_difference(tensors, shown.index))
    magnitudes = np.abs(matrix[np.isfinite(matrix)])
    finite = matrix[np.isfinite(matrix)]
    return {
        **shown.members(),
        "numbers": packed(matrix),
        "is_exact": shown.is_exact,
        "is_cut": cheap is None,
        "low": number(float(finite.min())) if len(finite) else None,
        "high": number(float(finite.max())) if len(finite) else None,
        "scale": number(_scale(magnitudes)),
    }


def line(tensors: Sequence[LazyTensor], at: tuple[int, ...], dim: int, span: range, n_points: int) -> dict[str, Any]:
    """Return the numbers along one dimension; of two tensors, their difference."""
    tensors = [numeric(lazy) for lazy in tensors]
    per_point = max(1, -(-len(span) // n_points))
    shown = span
    if not all(is_cheap(lazy, _along(at, dim, shown)) for lazy in tensors):
        shown, per_point = span[::per_point], 1
    numbers = _difference(tensors, _along(at, dim, shown)).reshape(-1)
    found = {"dim": dim, "at": at, "range": range_members(shown), "is_exact": per_point == shown.step == 1}
    if per_point == 1:
        return {**found, "n_points": len(numbers), "numbers": packed(numbers)}
    low, high, mean = _pooled(numbers, per_point)
    pooled = {"low": packed(low), "high": packed(high), "mean": packed(mean)}
    return {**found, "n_points": len(low), "per_point": per_point, **pooled}


def values(lazy: LazyTensor, window: Window) -> dict[str, Any]:
    """Return elements as they are."""
    lazy = numeric(lazy)
    refuse_costly(lazy, window.index)
    matrix = window.matrix(np.asarray(lazy[window.index]))
    return {**window.members(), "values": [list(map(_value, row)) for row in matrix]}


def _along(at: tuple[int, ...], dim: int, span: range) -> tuple[int | slice, ...]:
    return (*at[:dim], slice(span.start, span.stop, span.step), *at[dim + 1 :])


def _difference(tensors: Sequence[LazyTensor], index: tuple[Any, ...]) -> Numbers:
    """Read a part of a tensor, or the difference of two."""
    if not tensors[0].n_elements:
        return np.zeros(0)
    for lazy in tensors:
        refuse_costly(lazy, index)
    first, *others = (np.asarray(lazy[index]) for lazy in tensors)
    return change_between(others[0], first) if others else as_numbers(first)


def _scale(magnitudes: Numbers) -> float:
    if not magnitudes.any():
        return 1.0
    return float(np.quantile(magnitudes, _SHARE_IN_SCALE)) or float(magnitudes.max())


def _pooled(numbers: Numbers, per_point: int) -> tuple[Numbers, Numbers, Numbers]:
    """Return the extremes and the mean of neighbors, without NaNs."""
    n_points = -(-len(numbers) // per_point)
    padded = np.full(n_points * per_point, np.nan)
    padded[: len(numbers)] = numbers
    groups = padded.reshape(n_points, per_point)
    with np.errstate(all="ignore"):
        n = np.count_nonzero(~np.isnan(groups), axis=1)
        mean = np.nansum(groups, axis=1) / np.where(n, n, np.nan)
        return np.fmin.reduce(groups, axis=1), np.fmax.reduce(groups, axis=1), mean


def _value(element: Any) -> Any:
    """Return an element in as few digits as tell it apart from its neighbors in its own dtype."""
    if isinstance(element, np.bool_):
        return bool(element)
    if isinstance(element, np.integer):
        return number(int(element))
    if isinstance(element, np.complexfloating):
        return str(element)
    return number(float(str(element)) if isinstance(element, np.floating) else float(element))

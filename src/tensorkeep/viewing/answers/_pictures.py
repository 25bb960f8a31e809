"""Parts of a tensor to be drawn: heatmaps, lines and tables of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorkeep.sampling import Numbers, Window, in_numpy, is_cheap, numbers_at, refuse_costly, sample
from tensorkeep.tensors import LazyTensor
from tensorkeep.viewing._json import number, packed


def heatmap(tensors: Sequence[LazyTensor], window: Window, height: int, width: int) -> dict[str, Any]:
    """Return a sample of a plane; of two tensors, their difference."""
    found = sample(tensors, window, height, width)
    finite = found.matrix[np.isfinite(found.matrix)]
    return {
        **_members(found.window),
        "numbers": packed(found.matrix),
        "is_exact": found.window.is_exact,
        "is_cut": found.is_cut,
        "low": number(float(finite.min())) if len(finite) else None,
        "high": number(float(finite.max())) if len(finite) else None,
        "scale": number(found.scale),
    }


def line(tensors: Sequence[LazyTensor], at: tuple[int, ...], dim: int, span: range, n_points: int) -> dict[str, Any]:
    """Return the numbers along one dimension; of two tensors, their difference."""
    tensors = [in_numpy(lazy) for lazy in tensors]
    per_point = max(1, -(-len(span) // n_points))
    shown = span
    if not all(is_cheap(lazy, _along(at, dim, shown)) for lazy in tensors):
        shown, per_point = span[::per_point], 1
    numbers = numbers_at(tensors, _along(at, dim, shown)).reshape(-1)
    found = {"dim": dim, "at": at, "range": _range_members(shown), "is_exact": per_point == shown.step == 1}
    if per_point == 1:
        return {**found, "n_points": len(numbers), "numbers": packed(numbers)}
    low, high, mean = _pooled(numbers, per_point)
    pooled = {"low": packed(low), "high": packed(high), "mean": packed(mean)}
    return {**found, "n_points": len(low), "per_point": per_point, **pooled}


def values(lazy: LazyTensor, window: Window) -> dict[str, Any]:
    """Return elements as they are."""
    lazy = in_numpy(lazy)
    refuse_costly(lazy, window.index)
    matrix = window.matrix(np.asarray(lazy[window.index]))
    return {**_members(window), "values": [list(map(_value, row)) for row in matrix]}


def _along(at: tuple[int, ...], dim: int, span: range) -> tuple[int | slice, ...]:
    return (*at[:dim], slice(span.start, span.stop, span.step), *at[dim + 1 :])


def _members(window: Window) -> dict[str, Any]:
    return {
        "dims": window.dims,
        "at": window.at,
        "rows": _range_members(window.rows),
        "columns": _range_members(window.columns),
        "shape": window.shape,
    }


def _range_members(positions: range) -> dict[str, int]:
    return {"start": positions.start, "stop": positions.stop, "step": positions.step}


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

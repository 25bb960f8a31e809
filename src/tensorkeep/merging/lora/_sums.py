"""Changed weights, computed in blocks of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, Final

import numpy as np

from tensorkeep.merging._computing import Merge, Numbers, blocks_of, computed_in_wide
from tensorkeep.tensors import LazyTensor

_MAX_ROWS: Final = 32
_BLOCK_LENGTH: Final = 2**16
"""Numbers of a weight to compute at a time, in as many rows: in F64 they stay in the L2 cache."""

_TILE_ROWS: Final = 8
_TILE_WORK: Final = 2**17
"""Rows and multiplications of one call of BLAS. Sums depend on the number of rows, so that is always the same. And
so little work starts no threads: they would wait for those that compute other rows, and take ten times as long."""


def weight_plus_product(
    scale: float, right: LazyTensor, inputs: Sequence[LazyTensor], *, has_magnitude: bool
) -> Callable[..., Numbers]:
    """Return a function of rows of a weight, the same rows of the left factor and, for DoRA, of the magnitudes.

    `right` (rank, …) is a lazy tensor, which is small and read each time.
    """
    return partial(_by_rows, partial(_merge, scale, right, has_magnitude), [lazy.dtype for lazy in inputs])


def bias_plus(scale: float, bias: Numbers, change: Numbers) -> Numbers:
    """Return a bias plus `scale` times its change."""
    changed: Numbers = bias + change * bias.dtype.type(scale)
    return changed


def _by_rows(begin: Callable[[], Merge], dtypes: Sequence[str], *stored: Any) -> Numbers:
    merge = computed_in_wide(begin(), dtypes)
    changed = np.empty(stored[0].shape, stored[0].dtype)
    for rows in blocks_of(len(changed), _n_rows(prod(changed.shape[1:]))):
        changed[rows] = merge(*(tensor[rows] for tensor in stored))
    return changed


def _merge(scale: float, right: LazyTensor, has_magnitude: bool) -> Merge:
    factor = np.asarray(right).astype(np.float64).reshape(right.shape[0], -1) * scale
    return partial(_with_magnitude if has_magnitude else _with_product, factor)


def _with_product(factor: Numbers, weight: Numbers, left: Numbers) -> Numbers:
    changed: Numbers = weight + _product(left, factor, weight.dtype).reshape(weight.shape).astype(weight.dtype)
    return changed


def _with_magnitude(factor: Numbers, weight: Numbers, left: Numbers, magnitude: Numbers) -> Numbers:
    changed = weight + _product(left, factor, weight.dtype)
    norms = np.linalg.norm(changed, axis=1)
    scaled: Numbers = (changed * (magnitude / norms)[:, None]).astype(weight.dtype)
    return scaled


def _product(left: Numbers, factor: Numbers, dtype: Any) -> Numbers:
    """Multiply (rows, rank) by (rank, columns) in F64, each row to the same bits whatever rows are beside it."""
    rows = left.reshape(len(left), -1).astype(np.float64)
    if dtype == np.float64:  # not by BLAS, whose order of sums is not known
        total = np.zeros((len(rows), factor.shape[1]))
        for of_rank, values in zip(rows.T, factor, strict=True):
            total += of_rank[:, None] * values
        return total
    n_rows = -(-len(rows) // _TILE_ROWS) * _TILE_ROWS
    padded = np.zeros((n_rows, rows.shape[1]))
    padded[: len(rows)] = rows
    product = np.empty((n_rows, factor.shape[1]))
    for of_rows in blocks_of(n_rows, _TILE_ROWS):
        for columns in blocks_of(factor.shape[1], max(_TILE_WORK // (_TILE_ROWS * len(factor)), 1)):
            np.matmul(padded[of_rows], factor[:, columns], out=product[of_rows, columns])
    return product[: len(rows)]


def _n_rows(n_columns: int) -> int:
    """Return how many rows are computed at once."""
    return min(max(_BLOCK_LENGTH // max(n_columns, 1), _TILE_ROWS), _MAX_ROWS)

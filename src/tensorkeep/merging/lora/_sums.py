"""Changed weights, computed in blocks of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, Final

import numpy as np

from tensorkeep.arrays.elements import castable
from tensorkeep.dtypes import BY_NAME, DType
from tensorkeep.merging._computing import Numbers, blocks_of, room_for, wide_dtype, widened
from tensorkeep.tensors import LazyTensor

_MAX_ROWS: Final = 32
_BLOCK_LENGTH: Final = 2**16
"""Numbers of a weight to compute at a time, in as many rows: in F64 they stay in the L2 cache."""

_TILE_ROWS: Final = 8
_TILE_WORK: Final = 2**18
"""Rows and multiplications of one call of BLAS. Sums depend on the number of rows, so that is always the same. And
so little work starts no threads: they would wait for those that compute other rows, and take ten times as long."""


def weight_plus_product(scale: float, right: LazyTensor, inputs: Sequence[LazyTensor]) -> Callable[..., Numbers]:
    """Return a function of rows of a weight, the same rows of the left factor and, for DoRA, of the magnitudes.

    `right` (rank, …) is a lazy tensor, which is small and read each time.
    """
    return partial(_by_rows, scale, right, [lazy.dtype for lazy in inputs])


def bias_plus(scale: float, bias: Numbers, change: Numbers) -> Numbers:
    """Return a bias plus `scale` times its change."""
    changed: Numbers = bias + change * bias.dtype.type(scale)
    return changed


def _by_rows(scale: float, right: LazyTensor, dtypes: Sequence[str], *stored: Any) -> Numbers:
    factor = np.asarray(right).astype(np.float64).reshape(right.shape[0], -1) * scale
    changed = np.empty(stored[0].shape, stored[0].dtype)
    into, weight, left, *magnitudes = (_as_matrix(tensor) for tensor in (changed, *stored))
    wide, narrow = wide_dtype(dtypes), BY_NAME[dtypes[0]]
    multiply = _summed if wide.name == "F64" else _multiplied
    shape = (_n_rows(*into.shape), factor.shape[1])
    room, product_room = room_for(wide, shape), room_for(_precise(wide, narrow), shape)
    with np.errstate(all="ignore"):  # a model may hold infinities
        factor = factor.astype(product_room.dtype, copy=False)
        for rows in blocks_of(len(changed), len(room)):
            numbers = widened(weight[rows], room)
            product = multiply(left[rows], factor, product_room)
            if magnitudes:
                numbers = _of_length(magnitudes[0][rows].astype(numbers.dtype), numbers + product)
            else:
                numbers += product.astype(numbers.dtype, copy=False)
            into[rows] = castable(numbers, narrow)
    return changed


def _precise(wide: DType, narrow: DType) -> DType:
    """Return the dtype of products. F32 takes half the time, and is precise enough for half precision."""
    return wide if narrow.bits < 32 else BY_NAME["F64"]


def _of_length(magnitude: Numbers, numbers: Numbers) -> Numbers:
    """Give each row a length."""
    scaled: Numbers = numbers * (magnitude / np.linalg.norm(numbers, axis=1, keepdims=True))
    return scaled


def _as_matrix(tensor: Numbers) -> Numbers:
    return tensor.reshape(len(tensor), prod(tensor.shape[1:]))


def _n_rows(n_rows: int, n_columns: int) -> int:
    """Return how many rows to compute at once: whole tiles."""
    n_tiles = min(max(_BLOCK_LENGTH // max(n_columns, 1), _TILE_ROWS), _MAX_ROWS, n_rows) // -_TILE_ROWS
    return max(-n_tiles, 1) * _TILE_ROWS


def _summed(left: Numbers, factor: Numbers, room: Numbers) -> Numbers:
    """Multiply numbers in F64, which are not rounded again: not by BLAS, whose order of sums is not known."""
    total = room[: len(left)]
    total.fill(0)
    for of_rank, values in zip(left.T, factor, strict=True):
        total += of_rank[:, None] * values
    return total


def _multiplied(left: Numbers, factor: Numbers, room: Numbers) -> Numbers:
    """Multiply (rows, rank) by (rank, columns), each row to the same bits whatever rows are beside it."""
    rank, n_columns = factor.shape
    n_rows = -(-len(left) // _TILE_ROWS) * _TILE_ROWS
    padded = np.zeros((n_rows, rank), room.dtype)
    padded[: len(left)] = left
    width = max(_TILE_WORK // (_TILE_ROWS * rank), 1)
    for columns in _whole_tiles_and_rest(n_columns, width):
        n_in_tile = min(width, columns.stop - columns.start)
        np.matmul(
            _tiles(padded, _TILE_ROWS, rank),
            _tiles(factor[:, columns], rank, n_in_tile),
            out=_tiles(room[:n_rows, columns], _TILE_ROWS, n_in_tile),
        )
    return room[: len(left)]


def _whole_tiles_and_rest(n_columns: int, width: int) -> list[slice]:
    n_whole = n_columns // width * width
    return [part for part in (slice(0, n_whole), slice(n_whole, n_columns)) if part.start < part.stop]


def _tiles(matrix: Numbers, n_rows: int, n_columns: int) -> Numbers:
    """Return a view of a matrix as tiles (down, across, rows, columns), each of which BLAS multiplies in one call."""
    down, across = matrix.shape[0] // n_rows, matrix.shape[1] // n_columns
    return matrix.reshape(down, n_rows, across, n_columns).swapaxes(1, 2)

"""Two thin factors of a large matrix, which is read in blocks of rows. Pure.

The truncated SVD is found by random projection with subspace iteration (Halko, Martinsson and Tropp, "Finding
structure with randomness", 2011, arXiv:0909.4061), in F64: for a matrix (m, n), memory is O((m + n) rank). Small
matrices are decomposed exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import sqrt
from typing import Final, TypeAlias

import msgspec
import numpy as np

from tensorkeep.merging._computing import Numbers

Blocks: TypeAlias = Callable[[], Iterator[tuple[int, Numbers]]]
"""Reads a matrix once: its blocks of rows, in F64, each with the number of its first row."""

_EXACT_LENGTH: Final = 2**20
"""Elements up to which a matrix is decomposed as a whole."""

_N_EXTRA: Final = 16
"""Directions beyond the rank: with them, what the rank leaves out hardly disturbs the wanted ones."""

_N_ITERATIONS: Final = 3
"""Each multiplies the lead of the wanted directions; differences of trained weights decay slowly."""


class Factors(msgspec.Struct, frozen=True):
    """A product that is near a matrix.

    Attributes:
        left: (m, rank).
        right: (rank, n).
        norm: The Frobenius norm of the matrix.
        error: The norm of what the product lacks, as a share of `norm`.
    """

    left: Numbers
    right: Numbers
    norm: float
    error: float


def factorize(blocks: Blocks, shape: tuple[int, int], rank: int, seed: int) -> Factors:
    """Return the factors of rank `rank` that are nearest to a matrix, nearly so if it is large."""
    n_rows, n_columns = shape
    n_wide = min(rank + _N_EXTRA, n_rows, n_columns)
    if n_rows * n_columns <= _EXACT_LENGTH or n_wide == min(shape):
        basis = np.eye(n_rows)
    else:
        random = np.random.default_rng(seed)
        basis = _product(blocks, shape, random.standard_normal((n_columns, n_wide)))
        for _ in range(_N_ITERATIONS):
            basis = _product(blocks, shape, _orthonormal(_transposed_product(blocks, shape, _orthonormal(basis))))
        basis = _orthonormal(basis)
    projected = np.zeros((basis.shape[1], n_columns))
    square = 0.0
    for start, rows in blocks():
        projected += basis[start : start + len(rows)].T @ rows
        square += float(np.vdot(rows, rows))
    left, sizes, right = np.linalg.svd(projected, full_matrices=False)
    roots = np.sqrt(sizes[:rank])
    rest = max(square - float(np.square(sizes[:rank]).sum()), 0.0)
    return Factors(
        (basis @ left[:, :rank]) * roots,
        right[:rank] * roots[:, None],
        sqrt(square),
        sqrt(rest / square) if square else 0.0,
    )


def _product(blocks: Blocks, shape: tuple[int, int], right: Numbers) -> Numbers:
    product = np.empty((shape[0], right.shape[1]))
    for start, rows in blocks():
        product[start : start + len(rows)] = rows @ right
    return product


def _transposed_product(blocks: Blocks, shape: tuple[int, int], left: Numbers) -> Numbers:
    product = np.zeros((shape[1], left.shape[1]))
    for start, rows in blocks():
        product += rows.T @ left[start : start + len(rows)]
    return product


def _orthonormal(columns: Numbers) -> Numbers:
    basis: Numbers = np.linalg.qr(columns)[0]
    return basis

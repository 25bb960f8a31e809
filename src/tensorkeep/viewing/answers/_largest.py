"""The largest eigenvalues of a large matrix that is only known by its products (block Lanczos). Pure.

The products of a few random vectors span a space that soon holds the eigenvectors of the largest eigenvalues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]

_N_AT_ONCE: Final = 32
"""Vectors that are multiplied together."""

MAX_STEPS: Final = 12
"""Products; so many give 64 values of pure noise, where they lie closest together, to 1 in 300."""

_PRECISION: Final = 1e-3
"""Relative change of the values in a step at which they are near enough."""


def largest_eigenvalues(product: Callable[[Numbers], Numbers], side: int, n: int) -> Numbers:
    """Return the `n` largest eigenvalues of a symmetric matrix without negative ones, in descending order."""
    found = np.zeros(0)
    for values in _approximations(product, side):
        is_near = len(found) >= n and np.allclose(values[:n], found[:n], rtol=_PRECISION, atol=0)
        found = values
        if is_near:
            break
    return found[:n]


def _approximations(product: Callable[[Numbers], Numbers], side: int) -> Iterator[Numbers]:
    """Yield all eigenvalues within a space that grows."""
    vectors = np.random.default_rng(0).standard_normal((side, _N_AT_ONCE))  # always the same, as are the results
    basis, products = np.empty((side, 0)), np.empty((side, 0))
    for _ in range(MAX_STEPS):
        for _ in range(2):  # once leaves what rounding leaves
            vectors = vectors - basis @ (basis.T @ vectors)
        vectors, _ = np.linalg.qr(vectors)
        basis = np.hstack([basis, vectors])
        vectors = product(vectors)
        products = np.hstack([products, vectors])
        inner = basis.T @ products
        values = np.linalg.eigvalsh((inner + inner.T) / 2)[::-1].astype(np.float64, copy=False)
        yield values

"""Singular values of a plane of a tensor, from the inner products of its shorter side."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.errors import LimitError, UnsupportedError
from tensorkeep.parallel import Progress
from tensorkeep.sampling import Numbers, Window, as_numbers, in_numpy, refuse_costly
from tensorkeep.tensors import LazyTensor
from tensorkeep.viewing._json import number
from tensorkeep.viewing.answers._largest import MAX_STEPS, largest_eigenvalues

_MAX_SIDE: Final = 2048
"""Longest shorter side at which all are computed: inner products of 32 MB, whose eigenvalues take some seconds."""

_MAX_SIDE_OF_LARGEST: Final = 16_384
"""Longest shorter side at which the largest are computed."""

_N_LARGEST: Final = 64
_MAX_KEPT: Final = 2**24
"""Numbers that are kept as F32 from one product to the next: 64 MB; of larger planes they are read again."""

_MAX_ELEMENTS: Final = 2**28
_BLOCK_ELEMENTS: Final = 2**20
"""Elements that are read at a time: 8 MB as float64."""

_PRECISION_OF_LARGEST: Final = float(np.finfo(np.float32).eps) ** 0.5
_PRECISION: Final = float(np.finfo(np.float64).eps) ** 0.5
"""Squares of singular values are known to the precision of float64, so they themselves only to its root."""


def spectrum(lazy: LazyTensor, window: Window, progress: Progress) -> dict[str, Any]:
    """Return the singular values of a plane, of a large one the largest, and how many of them matter."""
    lazy = in_numpy(lazy)
    refuse_large(window)
    plane = _Plane(lazy, window)
    if plane.side <= _MAX_SIDE:
        found = _roots(np.linalg.eigvalsh(_inner_products(plane, progress))[::-1])
        return {**_members(found, plane.side, float((found**2).sum()), _PRECISION), "rank": _effective_rank(found)}
    products = _Products(plane, progress)
    found = _roots(largest_eigenvalues(products, plane.side, _N_LARGEST))
    return _members(found, plane.side, products.squares, _PRECISION_OF_LARGEST)


def _roots(squares: npt.NDArray[Any]) -> Numbers:
    roots: Numbers = np.sqrt(np.maximum(squares, 0))
    return roots


def _members(found: Numbers, n_values: int, squares: float, precision: float) -> dict[str, Any]:
    largest = float(found[0]) if len(found) else 0.0
    return {
        "values": [number(value) for value in found.tolist()],
        "n_values": n_values,
        "rank": None,
        "stable_rank": squares / largest**2 if largest else 0.0,
        "floor": largest * precision,
    }


def refuse_large(window: Window) -> None:
    """Refuse a plane that would take too long."""
    n_rows, n_columns = window.shape
    if min(n_rows, n_columns) > _MAX_SIDE_OF_LARGEST or n_rows * n_columns > _MAX_ELEMENTS:
        raise LimitError(
            "the plane is too large for singular values",
            expected=f"a shorter side of at most {_MAX_SIDE_OF_LARGEST:,}, and at most {_MAX_ELEMENTS:,} elements",
            found=f"{n_rows:,} x {n_columns:,}",
        )


class _Plane:
    """A plane, read in blocks of its longer side.

    Attributes:
        side: The shorter side.
        length: The longer one.
    """

    def __init__(self, lazy: LazyTensor, window: Window) -> None:
        self._lazy = lazy
        self._window = window
        n_rows, n_columns = window.shape
        self._is_tall = n_rows >= n_columns
        self.side, self.length = (n_columns, n_rows) if self._is_tall else (n_rows, n_columns)

    def blocks(self) -> Iterator[Numbers]:
        """Yield blocks as wide as the shorter side."""
        along = "rows" if self._is_tall else "columns"
        positions: range = getattr(self._window, along)
        step = max(1, _BLOCK_ELEMENTS // max(self.side, 1))
        for start in range(0, self.length, step):
            part = msgspec.structs.replace(self._window, **{along: positions[start : start + step]})
            refuse_costly(self._lazy, part.index)
            block = part.matrix(as_numbers(np.asarray(self._lazy[part.index])))
            yield block if self._is_tall else block.T

    def finite(self, products: Numbers) -> Numbers:
        """Return products of its numbers, or refuse those that are not finite."""
        if not np.isfinite(products).all():
            raise UnsupportedError(
                f"tensor `{self._lazy.name}` has NaN, infinities or huge numbers there", tensor=self._lazy.name
            )
        return products


def _inner_products(plane: _Plane, progress: Progress) -> Numbers:
    """Return the inner products of the columns, or of the rows if they are fewer."""
    gram, n_done = np.zeros((plane.side, plane.side)), 0
    with np.errstate(all="ignore"):
        for block in plane.blocks():
            gram += block.T @ block
            progress(n_done := n_done + len(block), plane.length)
    return plane.finite(gram)


class _Products:
    """Multiplies vectors by these inner products, without computing them.

    Attributes:
        squares: The sum of the squares of all numbers, once something was multiplied.
    """

    def __init__(self, plane: _Plane, progress: Progress) -> None:
        self.squares = 0.0
        self._plane = plane
        self._progress = progress
        self._n_done = 0
        self._kept: list[npt.NDArray[np.float32]] = []

    def __call__(self, vectors: Numbers) -> Numbers:
        """Multiply, in F32 and with sums in F64."""
        plane, narrow = self._plane, vectors.astype(np.float32)
        found = np.zeros(vectors.shape)
        is_first = not self._n_done
        with np.errstate(all="ignore"):
            for block in self._blocks():
                found += block.T @ (block @ narrow)
                if is_first:
                    self.squares += float(np.einsum("ij,ij->", block, block))
                self._n_done += len(block)
                self._progress(self._n_done, MAX_STEPS * plane.length)
        return plane.finite(found)

    def _blocks(self) -> Iterator[npt.NDArray[np.float32]]:
        """Yield the numbers; small planes are read once."""
        if self._kept:
            yield from self._kept
            return
        is_small = self._plane.side * self._plane.length <= _MAX_KEPT
        for block in self._plane.blocks():
            narrow = block.astype(np.float32)
            if is_small:
                self._kept.append(narrow)
            yield narrow


def _effective_rank(values: Numbers) -> float:
    """Return the number of equal singular values that would have the same entropy."""
    total = float(values.sum())
    if not total:
        return 0.0
    shares = values[values > 0] / total
    return exp(-float((shares * np.log(shares)).sum()))

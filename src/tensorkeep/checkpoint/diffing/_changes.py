"""How far the numbers of one array are from another's. Pure."""

from __future__ import annotations

from math import inf, nan, sqrt
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[Any]
    Numbers = npt.NDArray[np.float64]


class NumberDiff(msgspec.Struct, frozen=True):
    """How the numbers of two tensors differ.

    Attributes:
        n_different: Number of elements that differ as numbers: NaN equals NaN, and 0 equals -0.
        max_abs: Largest |a - b|; NaN if every differing pair contains a NaN.
        max_rel: Largest |a - b| / max(|a|, |b|), between 0 and 2; infinite if some |a - b| is; NaN as for `max_abs`.
        n_nan_a: Number of NaNs in a.
        n_nan_b: Number of NaNs in b.
        n_inf_a: Number of infinities in a.
        n_inf_b: Number of infinities in b.
        norm: Euclidean norm of b - a, without the elements where that is NaN or infinite.
        norm_a: Euclidean norm of a, without NaNs and infinities.
    """

    n_different: int
    max_abs: float
    max_rel: float
    n_nan_a: int
    n_nan_b: int
    n_inf_a: int
    n_inf_b: int
    norm: float
    norm_a: float

    @property
    def relative(self) -> float:
        """The norm of b - a divided by the norm of a; infinite if only the latter is 0."""
        if not self.norm:
            return 0.0
        return self.norm / self.norm_a if self.norm_a else inf


def change_between(a: Array, b: Array) -> Numbers:
    """Return b - a as float64, of complex numbers its magnitude; 0 where both are equal, or both are NaN.

    It is nowhere else 0: integers of 64 bits are subtracted before they are rounded.
    """
    import numpy as np

    with np.errstate(all="ignore"):
        return _change(a, b, *_wide(a, b))


class ChangeTally:
    """The differences found so far."""

    def __init__(self) -> None:
        self._n_different = 0
        self._max_abs = self._max_rel = nan
        self._n_nan = [0, 0]
        self._n_inf = [0, 0]
        self._squares = self._squares_a = 0.0

    def add(self, a: Array, b: Array) -> Numbers:
        """Compare some elements of both tensors, and return the changes."""
        import numpy as np

        wide = wide_a, wide_b = _wide(a, b)
        change = _change(a, b, *wide)
        squares, squares_a = _squares(change), _squares(wide_a)
        if not (np.isfinite(squares) and np.isfinite(squares_a)):
            for place, numbers in enumerate(wide):
                n_nan = int(np.count_nonzero(np.isnan(numbers)))
                self._n_nan[place] += n_nan
                self._n_inf[place] += len(numbers) - n_nan - int(np.count_nonzero(np.isfinite(numbers)))
            squares, squares_a = (_squares(numbers[np.isfinite(numbers)]) for numbers in (change, wide_a))
        self._squares += squares
        self._squares_a += squares_a
        n_different = int(np.count_nonzero(change != 0))
        if n_different:
            self._n_different += n_different
            self._measure(np.abs(change), np.maximum(np.abs(wide_a), np.abs(wide_b)))
        return change

    def _measure(self, gap: Numbers, largest: Numbers) -> None:
        import numpy as np

        if np.isnan(gap.max()):
            is_known = gap > 0
            gap, largest = gap[is_known], largest[is_known]
            if not len(gap):
                return
        share = gap / largest  # NaN for two zeros or infinities, which `fmax` ignores
        share[np.isinf(gap)] = np.inf
        self._max_abs = float(np.fmax(self._max_abs, gap.max()))
        self._max_rel = float(np.fmax(self._max_rel, np.fmax.reduce(share)))

    def result(self) -> NumberDiff:
        """Return the result."""
        if not self._n_different:
            self._max_abs = self._max_rel = 0.0
        return NumberDiff(
            self._n_different,
            self._max_abs,
            self._max_rel,
            n_nan_a=self._n_nan[0],
            n_nan_b=self._n_nan[1],
            n_inf_a=self._n_inf[0],
            n_inf_b=self._n_inf[1],
            norm=sqrt(self._squares),
            norm_a=sqrt(self._squares_a),
        )


def _wide(a: Array, b: Array) -> tuple[Array, Array]:
    import numpy as np

    wide = np.complex128 if "c" in {a.dtype.kind, b.dtype.kind} else np.float64
    return a.astype(wide, copy=False), b.astype(wide, copy=False)


def _change(a: Array, b: Array, wide_a: Array, wide_b: Array) -> Numbers:
    import numpy as np

    change = wide_b - wide_a
    if change.dtype.kind == "c":
        change = np.abs(change)
    if not np.isfinite(change).all():
        change[(wide_a == wide_b) | (np.isnan(wide_a) & np.isnan(wide_b))] = 0
    elif a.dtype == b.dtype and a.dtype.kind in "iu" and a.dtype.itemsize == 8:
        rounded = a != b
        change[rounded] = _exact_change(a[rounded], b[rounded])
    return change


def _exact_change(a: Array, b: Array) -> Numbers:
    """Return b - a of integers, computed exactly and then rounded to float64."""
    import numpy as np

    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    gap = np.maximum(a, b).view(unsigned) - np.minimum(a, b).view(unsigned)
    signed: Numbers = np.copysign(gap.astype(np.float64), np.where(b < a, -1.0, 1.0))
    return signed


def _squares(numbers: Array) -> float:
    import numpy as np

    if numbers.dtype.kind == "c":
        return _squares(numbers.real) + _squares(numbers.imag)
    return float(np.einsum("i,i->", numbers, numbers))  # not `dot`, which starts threads of its own

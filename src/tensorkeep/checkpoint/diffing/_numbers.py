"""Compare two tensors of the same shape byte by byte and number by number, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import nan
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from tensorkeep.arrays import adapter_for
from tensorkeep.arrays.elements import equal_bytes
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import ALL_BY_NAME, BY_NAME, DType
from tensorkeep.entries import TensorEntry
from tensorkeep.tensors import LazyTensor, stored_bytes

if TYPE_CHECKING:
    import numpy.typing as npt

    _Numbers = npt.NDArray[Any]


_N_AT_ONCE: Final = 2**15
"""Elements compared at a time: whole groups of packed ones, and few enough for the L2 cache."""

_Report = Callable[[int], None]


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
    """

    n_different: int
    max_abs: float
    max_rel: float
    n_nan_a: int
    n_nan_b: int
    n_inf_a: int
    n_inf_b: int


def have_equal_bytes(a: LazyTensor, b: LazyTensor, report: _Report) -> bool:
    """Whether two tensors have the same bytes; stops at the first difference."""
    done = 0
    with _Bytes(a) as left, _Bytes(b) as right:
        while done < a.nbytes:
            n_equal = left.skip_equal(right)
            if not n_equal:
                return False
            done += n_equal
            report(done)
    return True


def have_numbers(a: LazyTensor, b: LazyTensor) -> bool:
    """Whether the numbers of two tensors can be compared: NumPy or ml_dtypes has their dtypes."""
    dtypes = ALL_BY_NAME.get(a.dtype), ALL_BY_NAME.get(b.dtype)
    return all(dtype is not None and (dtype.name in BY_NAME or dtype.numpy) for dtype in dtypes)


def compare_numbers(a: LazyTensor, b: LazyTensor, report: _Report) -> NumberDiff:
    """Compare two tensors element by element.

    Tensors of different dtypes are compared as float64 or complex128.
    """
    import numpy as np

    dtype_a, dtype_b = ALL_BY_NAME[a.dtype], ALL_BY_NAME[b.dtype]
    tally = _Tally()
    with _Bytes(a) as left, _Bytes(b) as right, np.errstate(all="ignore"):
        for start in range(0, a.n_elements, _N_AT_ONCE):
            n_elements = min(_N_AT_ONCE, a.n_elements - start)
            numbers_a, numbers_b = left.numbers(dtype_a, n_elements), right.numbers(dtype_b, n_elements)
            if dtype_a != dtype_b:
                numbers_a, numbers_b = _wide(numbers_a, numbers_b)
            tally.add(numbers_a, numbers_b)
            report(dtype_a.nbytes(start + n_elements))
    return tally.result()


class _Bytes:
    """A stream of a tensor's bytes as a file stores them.

    They may lie in a temporarily mapped window of the file, so no method may keep a view of them.
    """

    def __init__(self, lazy: LazyTensor) -> None:
        self._pieces = _pieces(lazy)
        self._rest = memoryview(b"")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rest = memoryview(b"")
        self._pieces = iter(())  # drops the old iterator, which unmaps its window

    def skip_equal(self, other: _Bytes) -> int:
        """Skip the next bytes in both streams if they are equal, and return how many; 0 if they differ."""
        a, b = self._some(), other._some()
        n_compared = min(len(a), len(b))
        if not equal_bytes(a[:n_compared], b[:n_compared]):
            return 0
        self._rest, other._rest = a[n_compared:], b[n_compared:]
        return n_compared

    def numbers(self, dtype: DType, n_elements: int) -> _Numbers:
        """Take the next elements; packed ones in whole groups."""
        data = bytearray(dtype.nbytes(n_elements))
        done = 0
        while done < len(data):
            done += self._take_into(memoryview(data)[done:])
        return _numbers(data, dtype, n_elements)

    def _take_into(self, room: memoryview) -> int:
        some = self._some()
        n_taken = min(len(some), len(room))
        room[:n_taken] = some[:n_taken]
        self._rest = some[n_taken:]
        return n_taken

    def _some(self) -> memoryview:
        """Return the next bytes, at least one."""
        while not len(self._rest):
            self._rest = memoryview(b"")  # even an empty view would keep a window from being unmapped
            self._rest = memoryview(next(self._pieces)).cast("B")
        return self._rest


def _pieces(lazy: LazyTensor) -> Iterator[Buffer]:
    source, span = lazy.source, lazy.span
    if source is not None and span is not None:
        return source.pieces(span)
    return lazy.tensor_to_write().buffers() if lazy.dtype in BY_NAME else stored_bytes(lazy)


def _numbers(data: bytearray, dtype: DType, n_elements: int) -> _Numbers:
    """Decode bytes into numbers: narrow floats become F32, which holds all of them; booleans become 0 and 1."""
    import numpy as np

    if dtype.name not in BY_NAME:
        return np.frombuffer(data, dtype.numpy)
    entry = TensorEntry("U8" if dtype.name == "BOOL" else dtype.name, (n_elements,), (0, len(data)))
    elements: _Numbers = adapter_for("numpy").views(data, {"": entry}, 0)[""]
    if dtype.name == "BOOL":
        return np.minimum(elements, 1)
    return elements.astype(np.float32) if dtype.is_float and dtype.bits < 32 else elements


def _wide(a: _Numbers, b: _Numbers) -> tuple[_Numbers, _Numbers]:
    import numpy as np

    wide = np.complex128 if "c" in {a.dtype.kind, b.dtype.kind} else np.float64
    return a.astype(wide), b.astype(wide)


class _Tally:
    """The differences found so far."""

    def __init__(self) -> None:
        self._n_different = 0
        self._max_abs = self._max_rel = nan
        self._n_nan = [0, 0]
        self._n_inf = [0, 0]

    def add(self, a: _Numbers, b: _Numbers) -> None:
        """Compare some elements of both tensors, which have the same dtype."""
        import numpy as np

        differ = a != b
        if a.dtype.kind in "fc":
            nans = np.isnan(a), np.isnan(b)
            differ &= ~(nans[0] & nans[1])
            for place, (numbers, is_nan) in enumerate(zip((a, b), nans, strict=True)):
                self._n_nan[place] += int(np.count_nonzero(is_nan))
                self._n_inf[place] += int(np.count_nonzero(np.isinf(numbers) & ~is_nan))
        n_different = int(np.count_nonzero(differ))
        if n_different:
            self._n_different += n_different
            self._measure(a[differ], b[differ])

    def _measure(self, a: _Numbers, b: _Numbers) -> None:
        import numpy as np

        wide_a, wide_b = _wide(a, b)
        gap = abs(wide_a - wide_b) if a.dtype.kind in "fc" else _exact_gap(a, b)
        share = gap / np.maximum(abs(wide_a), abs(wide_b))
        share[np.isinf(gap)] = np.inf
        self._max_abs = float(np.fmax(self._max_abs, np.fmax.reduce(gap)))  # fmax ignores NaN
        self._max_rel = float(np.fmax(self._max_rel, np.fmax.reduce(share)))

    def result(self) -> NumberDiff:
        """Return the result."""
        if not self._n_different:
            self._max_abs = self._max_rel = 0.0
        return NumberDiff(self._n_different, self._max_abs, self._max_rel, *self._n_nan, *self._n_inf)


def _exact_gap(a: _Numbers, b: _Numbers) -> _Numbers:
    """Return |a - b| of integers, computed exactly and then rounded to float64."""
    import numpy as np

    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    exact: _Numbers = np.maximum(a, b).view(unsigned) - np.minimum(a, b).view(unsigned)
    return exact.astype(np.float64)

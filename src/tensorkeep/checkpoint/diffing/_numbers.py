"""Compares two tensors of the same shape byte by byte and number by number, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from tensorkeep.arrays import adapter_for
from tensorkeep.arrays.elements import equal_bytes
from tensorkeep.buffers import Buffer
from tensorkeep.checkpoint.diffing._changes import ChangeTally, NumberDiff
from tensorkeep.dtypes import ALL_BY_NAME, BY_NAME, DType
from tensorkeep.entries import TensorEntry
from tensorkeep.tensors import LazyTensor, stored_bytes

if TYPE_CHECKING:
    from tensorkeep.checkpoint.diffing._changes import Array, Numbers


_N_AT_ONCE: Final = 2**15
"""Elements compared at a time: whole groups of packed ones, and few enough for the L2 cache."""

_Report = Callable[[int], None]
Watch: TypeAlias = "Callable[[Numbers], object]"


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


def compare_numbers(a: LazyTensor, b: LazyTensor, report: _Report, watch: Watch | None = None) -> NumberDiff:
    """Compare two tensors element by element; `watch` takes the changes from a to b, block by block.

    Tensors of different dtypes are compared as float64 or complex128.
    """
    import numpy as np

    dtype_a, dtype_b = ALL_BY_NAME[a.dtype], ALL_BY_NAME[b.dtype]
    tally = ChangeTally()
    with _Bytes(a) as left, _Bytes(b) as right, np.errstate(all="ignore"):
        for start in range(0, a.n_elements, _N_AT_ONCE):
            n_elements = min(_N_AT_ONCE, a.n_elements - start)
            change = tally.add(left.numbers(dtype_a, n_elements), right.numbers(dtype_b, n_elements))
            if watch is not None:
                watch(change)
            report(start + n_elements)
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

    def numbers(self, dtype: DType, n_elements: int) -> Array:
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


def _numbers(data: bytearray, dtype: DType, n_elements: int) -> Array:
    """Decode bytes into numbers: narrow floats become F32, which holds all of them; booleans become 0 and 1."""
    import numpy as np

    if dtype.name == "C32":
        return np.frombuffer(data, np.float16).astype(np.float32).view(np.complex64)
    if dtype.name not in BY_NAME:
        return np.frombuffer(data, dtype.numpy)
    entry = TensorEntry("U8" if dtype.name == "BOOL" else dtype.name, (n_elements,), (0, len(data)))
    elements: Array = adapter_for("numpy").views(data, {"": entry}, 0)[""]
    if dtype.name == "BOOL":
        return np.minimum(elements, 1)
    return elements.astype(np.float32) if dtype.is_float and dtype.bits < 32 else elements

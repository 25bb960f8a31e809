"""NumPy arrays; bfloat16, fp8, fp6 and fp4 through ml_dtypes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import prod
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from tensorkeep.arrays._base import Extent, StreamedTensor, TensorToWrite
from tensorkeep.arrays._pieces import pieces
from tensorkeep.arrays.elements import (
    aligned,
    castable,
    elements_of,
    known_dtype,
    pack,
    unpack,
    within_numpys_limits,
)
from tensorkeep.arrays.in_memory import TensorInMemory, bytes_at
from tensorkeep.arrays.numpy._arithmetic import NumpyArithmetic
from tensorkeep.arrays.numpy._dtypes import is_plain, known_row, numpy_dtype
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import BY_NAME, BY_NUMPY, DTYPES, DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import DtypeError
from tensorkeep.limits import PACK_NBYTES

Array = npt.NDArray[Any]


def _stored_forms(dtypes: Iterable[DType]) -> dict[str, tuple[np.dtype[Any], int]]:
    """Return, for dtypes that NumPy reads as they are in a file, its dtype and the mask of misaligned offsets."""
    if sys.byteorder == "big":
        return {}
    found = {dtype.name: numpy_dtype(dtype) for dtype in dtypes if not dtype.is_packed}
    return {name: (dtype, dtype.alignment - 1) for name, dtype in found.items()}


_IN_NUMPY = _stored_forms(dtype for dtype in DTYPES if dtype.is_in_numpy)


class NumpyArrays:
    """NumPy arrays: `DenseArrays` and `SharedMemory`."""

    is_on_host = True
    plain_classes: Final[Mapping[type, Callable[[Any], bool]]] = {np.ndarray: is_plain, np.memmap: is_plain}

    def __init__(self) -> None:
        self._stored = _IN_NUMPY

    def views(self, buffer: Buffer, entries: Mapping[str, TensorEntry], base: int) -> dict[str, Array]:
        """Make arrays over a buffer, without a copy if their elements are aligned and NumPy has the dtype."""
        make = np.ndarray
        stored = self._stored
        arrays: dict[str, Array] = {}
        for name, entry in entries.items():
            offset = base + entry.data_offsets[0]
            try:
                dtype, misaligned = stored[entry.dtype]
                if not offset & misaligned:
                    arrays[name] = make(entry.shape, dtype, buffer, offset)
                    continue
                if entry.dtype in _IN_NUMPY:
                    arrays[name] = make(entry.shape, dtype, buffer, offset).copy()
                    continue
            except KeyError:
                if stored is _IN_NUMPY and not known_dtype(name, entry).is_packed:
                    stored = self._stored = _stored_forms(DTYPES)
                    arrays |= self.views(buffer, {name: entry}, base)
                    continue
            except (ValueError, OverflowError):  # a shape that NumPy cannot hold
                pass
            arrays[name] = self._copied(name, entry, buffer, offset)
        return arrays

    def _copied(self, name: str, entry: TensorEntry, buffer: Buffer, offset: int) -> Array:
        elements = elements_of(name, entry, buffer, offset)
        return self.from_elements(elements, BY_NAME[entry.dtype])

    def place(self, tensors: dict[str, Any]) -> dict[str, Any]:
        """Leave arrays where they are."""
        return tensors

    def from_elements(self, elements: Array, dtype: DType) -> Array:
        """Give elements their dtype."""
        return elements.view(numpy_dtype(dtype))

    def storage(self, data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """Return the bytes themselves, or a copy at an address that suits every dtype."""
        return aligned(data)

    def view_of(
        self,
        storage: Any,
        dtype: DType,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        *,
        is_conj: bool = False,
        is_neg: bool = False,
    ) -> Array:
        """Make an array over a storage; conjugates and negatives are computed, for NumPy has no views of these."""
        if dtype.is_packed:
            start, n_elements = offset * dtype.bits // 8, prod(shape)
            packed = storage[start : start + dtype.nbytes(n_elements)]
            return self.from_elements(unpack(packed, dtype.bits, 0, n_elements).reshape(shape), dtype)
        with within_numpys_limits("", shape):
            step = dtype.itemsize
            view: Array = np.ndarray(
                shape, numpy_dtype(dtype), storage.data, offset * step, tuple(stride * step for stride in strides)
            )
        view = view.conj() if is_conj else view
        return -view if is_neg else view

    def arithmetic(self) -> NumpyArithmetic:
        """Return the operations for formulas."""
        return NumpyArithmetic()

    def has_dtype(self, dtype: DType) -> bool:
        """Say whether NumPy, or ml_dtypes, has a dtype."""
        return bool(dtype.numpy)

    def memory_of(self, dtype: DType) -> Literal["shared", "copied", "converted"]:
        """Say whether an array shares the memory it is made of: not if elements share bytes there."""
        return "converted" if dtype.is_packed else "shared"

    def cast(self, tensor: Any, dtype: DType) -> Array:
        """Convert to another floating-point dtype."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return castable(tensor, dtype).astype(numpy_dtype(dtype))

    def tensor_to_write(self, tensor: Any, name: str) -> TensorToWrite:
        """Describe an array for writing."""
        array = np.asarray(tensor)
        dtype = known_row(array.dtype)
        if dtype is None:
            raise DtypeError(
                f"tensor `{name}` has a dtype that the format cannot hold",
                tensor=name,
                expected="one of " + ", ".join(BY_NUMPY),
                found=str(array.dtype),
            )
        nbytes = dtype.nbytes(array.size)
        if nbytes and array.flags.c_contiguous and _is_little_endian(array) and not dtype.is_packed:
            return TensorInMemory(dtype, array.shape, nbytes, array.ctypes.data, array)
        return StreamedTensor(
            dtype,
            array.shape,
            nbytes,
            lambda: _buffers(array, dtype),
            lambda: _extent(array, dtype),
            lambda start, stop: bytes_at(start, stop, array),
        )


def _is_little_endian(array: Array) -> bool:
    order = array.dtype.byteorder
    return order in "<|" or (order == "=" and np.little_endian)


def _extent(array: Array, dtype: DType) -> Extent | None:
    if not array.size:
        return None
    return Extent("cpu", *np.lib.array_utils.byte_bounds(array), _strides(array, dtype))


def _strides(array: Array, dtype: DType) -> tuple[int, ...]:
    """Return strides in elements; none if memory is not what the file holds, or a stride is not whole elements."""
    step = array.itemsize
    if dtype.is_packed or not _is_little_endian(array) or any(n % step for n in array.strides):
        return ()
    return tuple(stride // step for stride in array.strides)


_PACKED_AT_ONCE = PACK_NBYTES // 4
"""Elements; packing one of six bits takes some sixteen bytes."""


def _buffers(array: Array, dtype: DType) -> Iterator[Buffer]:
    """Give the file's bytes: copies of bounded size."""
    if dtype.is_packed:
        for begin in range(0, array.size, _PACKED_AT_ONCE):
            yield pack(array.flat[begin : begin + _PACKED_AT_ONCE].view(np.uint8), dtype.bits).data
    else:
        for index in pieces(array.shape, array.dtype.itemsize, PACK_NBYTES):
            yield np.ascontiguousarray(array[index], array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data

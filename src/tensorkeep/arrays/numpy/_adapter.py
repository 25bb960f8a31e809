"""NumPy arrays; bfloat16, fp8, fp6 and fp4 through ml_dtypes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorkeep.arrays._attributes import check_marks, dense_order
from tensorkeep.arrays._base import LARGEST_E4M3, EncodedObject, Extent, FindClass, TensorToWrite
from tensorkeep.arrays._memory import bytes_at
from tensorkeep.arrays._pieces import pieces
from tensorkeep.arrays.elements import aligned, elements_of, known_dtype, pack, unpack, within_numpys_limits
from tensorkeep.arrays.numpy._codec import PLAIN_CLASSES, put_numpy_together, take_numpy_apart
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import BY_NAME, BY_NUMPY, DTYPES, DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import DtypeError
from tensorkeep.limits import PACK_NBYTES

Array = npt.NDArray[Any]


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """Return the NumPy dtype, of the machine's byte order."""
    if not dtype.numpy:
        raise DtypeError(
            f"NumPy has no dtype for {dtype.name}", found=dtype.name, hint='Load it with framework="torch"'
        )
    if dtype.is_in_numpy:
        return np.dtype(dtype.numpy)
    import ml_dtypes  # 10 ms, and only the narrow floats need it

    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, dtype.numpy))
    return found


def _stored_forms(dtypes: Iterable[DType]) -> dict[str, tuple[np.dtype[Any], int]]:
    """Return NumPy's dtype and the mask of misaligned offsets, for dtypes that NumPy reads as they lie in a file."""
    if sys.byteorder == "big":
        return {}
    found = {dtype.name: numpy_dtype(dtype) for dtype in dtypes if not dtype.is_packed}
    return {name: (dtype, dtype.alignment - 1) for name, dtype in found.items()}


_IN_NUMPY = _stored_forms(dtype for dtype in DTYPES if dtype.is_in_numpy)


class NumpyAdapter:
    """NumPy."""

    name = "numpy"
    is_on_host = True
    plain_classes = PLAIN_CLASSES

    def __init__(self) -> None:
        self._stored = _IN_NUMPY

    def views(self, buffer: Buffer, entries: Mapping[str, TensorEntry], base: int) -> dict[str, Array]:
        """Make arrays over a buffer; see `ArrayAdapter.views`."""
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
        """Leave arrays where they are; see `ArrayAdapter.place`."""
        return tensors

    def from_elements(self, elements: Array, dtype: DType) -> Array:
        """Give elements their dtype; see `ArrayAdapter.from_elements`."""
        return elements.view(numpy_dtype(dtype))

    def storage(self, data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """Leave the bytes where they are; see `ArrayAdapter.storage`."""
        return aligned(data)

    def shared(
        self, storage: Any, dtype: DType, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> Array:
        """Make an array over a storage; see `ArrayAdapter.shared`."""
        if dtype.is_packed:
            start, n_elements = offset * dtype.bits // 8, prod(shape)
            packed = storage[start : start + dtype.nbytes(n_elements)]
            return self.from_elements(unpack(packed, dtype.bits, 0, n_elements).reshape(shape), dtype)
        with within_numpys_limits("", shape):
            step = dtype.itemsize
            return np.ndarray(
                shape, numpy_dtype(dtype), storage.data, offset * step, tuple(stride * step for stride in strides)
            )

    def marked(self, tensor: Any, *, is_conj: bool, is_neg: bool, requires_grad: bool) -> Any:  # noqa: ARG002
        """Compute conjugates and negatives; see `ArrayAdapter.marked`."""
        tensor = tensor.conj() if is_conj else tensor
        return -tensor if is_neg else tensor

    def without_data(self, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        """Return None: every array has elements."""

    def composed(self, kind: str, parts: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        """Return None: every array is dense."""

    def attributes_of(self, tensor: Any) -> dict[str, Any]:
        """Tell the order of the dimensions; see `ArrayAdapter.attributes_of`."""
        if tensor.flags.c_contiguous:
            return {}
        order = dense_order(tensor.shape, tensor.strides, tensor.itemsize)
        return {} if order is None else {"order": order}

    def with_attributes(self, tensor: Any, marks: Mapping[str, Any]) -> Array:
        """Restore the order of the dimensions; see `ArrayAdapter.with_attributes`."""
        array: Array = tensor
        order = check_marks(marks, array.ndim)[2]
        if order is None or order == dense_order(array.shape, array.strides, array.itemsize):
            return array
        return np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))

    def encode_object(self, value: Any) -> EncodedObject | None:
        """Take apart what is data of NumPy; see `ArrayAdapter.encode_object`."""
        return take_numpy_apart(value)

    def decode_object(
        self,
        kind: str,
        parts: Mapping[str, Any],
        settings: Mapping[str, Any],
        find_class: FindClass,  # noqa: ARG002
    ) -> Any:
        """Put together what is data of NumPy; see `ArrayAdapter.decode_object`."""
        return put_numpy_together(kind, parts, settings)

    def known_class(self, name: str) -> None:
        """Return None: no classes are registered."""

    def labelled(self, kind: str, text: str) -> None:
        """Return None: NumPy has no such objects."""

    def cast(self, tensor: Any, dtype: DType) -> Array:
        """Convert to another floating-point dtype; see `ArrayAdapter.cast`."""
        array: Array = tensor
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            if dtype.bits < 32:  # ml_dtypes casts not every pair of narrow floats, and F32 holds all of them
                array = array.astype(np.float32, copy=False)
            if dtype.name == "F8_E4M3":
                array = np.asarray(array.clip(-LARGEST_E4M3, LARGEST_E4M3))
            return array.astype(numpy_dtype(dtype))

    def tensor_to_write(self, tensor: Any, name: str) -> TensorToWrite:
        """Describe an array for writing; see `ArrayAdapter.tensor_to_write`."""
        array = np.asarray(tensor)
        dtype = BY_NUMPY.get(array.dtype.name)
        if dtype is None:
            raise DtypeError(
                f"tensor `{name}` has a dtype that the format cannot hold",
                tensor=name,
                expected="one of " + ", ".join(BY_NUMPY),
                found=str(array.dtype),
            )
        return TensorToWrite(
            dtype,
            array.shape,
            dtype.nbytes(array.size),
            lambda: _extent(array, dtype),
            lambda: _buffers(array, dtype),
            lambda start, stop: bytes_at(start, stop, array),
        )


def _extent(array: Array, dtype: DType) -> Extent | None:
    if not array.size:
        return None
    return Extent("cpu", *np.lib.array_utils.byte_bounds(array), _strides(array, dtype))


def _strides(array: Array, dtype: DType) -> tuple[int, ...]:
    """Return strides in elements; none where memory does not hold the file's bytes, or they are between elements."""
    step = array.itemsize
    if dtype.is_packed or array.dtype != array.dtype.newbyteorder("<") or any(n % step for n in array.strides):
        return ()
    return tuple(stride // step for stride in array.strides)


_PACKED_AT_ONCE = PACK_NBYTES // 4
"""Elements; packing six bits each takes some sixteen bytes for one of them."""


def _buffers(array: Array, dtype: DType) -> Iterator[Buffer]:
    """Give the file's bytes of an array: a view of it, or copies of bounded size."""
    stored = array.dtype.newbyteorder("<")
    if array.flags.c_contiguous and array.dtype == stored and not dtype.is_packed:
        yield array.reshape(-1).view(np.uint8).data
    elif dtype.is_packed:
        for begin in range(0, array.size, _PACKED_AT_ONCE):
            yield pack(array.flat[begin : begin + _PACKED_AT_ONCE].view(np.uint8), dtype.bits).data
    else:
        for index in pieces(array.shape, array.dtype.itemsize, PACK_NBYTES):
            yield np.ascontiguousarray(array[index], stored).reshape(-1).view(np.uint8).data

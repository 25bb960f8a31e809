"""NumPy's own objects as plain data and arrays that a file can hold as they are.

kind           parts                              settings
scalar                                            dtype, data: the bytes, or the text of a `numpy.str_`
dtype                                             dtype, in the form of `_dtypes`
complex        data: F64, one dimension more      dtype of the array, complex128
array          data, as follows                   dtype of the array
                 big-endian numbers: the same numbers, little endian
                 dates and times: I64 of the same shape
                 anything else (text, structured, longdouble, int4): U8, with the bytes of an element in one more
                 dimension; padding, such as 6 of a longdouble's 16 bytes, is zero
records        data, as in array                  dtype of the `numpy.recarray`
objects        items: a list, in C order          shape
strings: see `_strings`
bit_generator, random_generator, random_state: see `_random`
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tensorkeep.arrays._attributes import check_attributes, dense_order
from tensorkeep.arrays._base import EncodedObject, FindClass, ObjectCodec
from tensorkeep.arrays.numpy._dtypes import OWN_DTYPES, described, dtype_of, is_plain
from tensorkeep.arrays.numpy._random import RANDOM_KINDS, decode_random, encode_random
from tensorkeep.arrays.numpy._strings import decode_strings, encode_strings
from tensorkeep.errors import FormatError, TensorkeepError, UnsupportedError

Array = npt.NDArray[Any]

_LARGEST_CODE_POINT: Final = 0x10FFFF

_EXTENDED_NBYTES: Final = 10
"""Bytes of an x87 number, which NumPy keeps in 12 or 16."""

_EXTENDED_MANTISSA: Final = 63


class NumpyCodec(ObjectCodec):
    """NumPy's scalars, dtypes, random generators, and arrays of dtypes that the format lacks."""

    def attributes_of(self, tensor: Any) -> dict[str, Any]:
        """Return the order of the dimensions in memory, if it is not C order."""
        if tensor.flags.c_contiguous:
            return {}
        order = dense_order(tensor.shape, tensor.strides, tensor.itemsize)
        return {} if order is None else {"order": order}

    def with_attributes(self, tensor: Any, attributes: Mapping[str, Any]) -> Array:
        """Restore the order of the dimensions in memory."""
        array: Array = tensor
        order = check_attributes(attributes, array.ndim)[2]
        if order is None or order == dense_order(array.shape, array.strides, array.itemsize):
            return array
        return np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))

    def encode_object(self, value: Any) -> EncodedObject | None:
        """Return an object of NumPy as arrays and plain data."""
        if isinstance(value, np.ndarray):
            return _encode_array(value) if _is_kept(value) else None
        if isinstance(value, np.generic):
            return _encode_scalar(value)
        if isinstance(value, np.dtype):
            description = described(value)
            return None if description is None else EncodedObject("numpy", "dtype", {}, {"dtype": description})
        return encode_random(value)

    def decode_object(
        self,
        kind: str,
        parts: Mapping[str, Any],
        settings: Mapping[str, Any],
        find_class: FindClass,  # noqa: ARG002
    ) -> Any:
        """Return the object that was encoded."""
        if kind not in _DECODERS and kind not in RANDOM_KINDS:
            raise UnsupportedError(f"NumPy has no objects of kind {kind!r:.100}", hint="A later version may know it")
        try:
            if kind in RANDOM_KINDS:
                return decode_random(kind, parts, settings)
            return _DECODERS[kind](parts, settings)
        except TensorkeepError:
            raise
        except (TypeError, ValueError, LookupError, OverflowError, MemoryError, AttributeError) as error:
            raise FormatError(f"the parts of NumPy's {kind} do not fit together", found=f"{error!s:.500}") from None

    def hint(self, value: Any) -> str:
        """Say what to do with an array that cannot be saved."""
        if isinstance(value, np.ma.MaskedArray):
            return "Save its data and its mask in a dict"
        if isinstance(value, np.ndarray) and not _is_kept(value):
            return "Save numpy.asarray(...) of it, and what else it holds beside it"
        if value.dtype.fields is not None:
            return "Its dtype has titles, metadata or objects: save its fields in a dict, each as value[name]"
        if value.dtype.kind == "T":
            return "Save value.astype(object) with None in place of its missing elements"
        return "Convert it with .astype(...) to a dtype that NumPy itself has, without metadata"


def _is_kept(array: Array) -> bool:
    """Say whether an array comes back in its own class, or is a memmap, which becomes a plain array."""
    return type(array) in {np.ndarray, np.memmap} or (type(array) is np.recarray and not array.dtype.hasobject)


def _encode_scalar(value: np.generic) -> EncodedObject | None:
    dtype = value.dtype
    description = described(dtype)
    if type(value) is not dtype.type or description is None or dtype.hasobject:
        return None
    if isinstance(value, np.str_):
        return EncodedObject("numpy", "scalar", {}, {"dtype": "<U", "data": str.__str__(value)})
    if isinstance(value, np.bytes_):
        return EncodedObject("numpy", "scalar", {}, {"dtype": "|S", "data": bytes(value)})
    if dtype.fields is None:
        dtype = dtype.newbyteorder("<")
    data = np.frombuffer(np.asarray(value, dtype).tobytes(), np.uint8)
    return EncodedObject(
        "numpy", "scalar", {}, {"dtype": described(dtype), "data": _without_padding(data, dtype).tobytes()}
    )


def _encode_array(array: Array) -> EncodedObject | None:
    dtype = array.dtype
    if dtype == np.object_:
        return EncodedObject("numpy", "objects", {"items": list(array.flat)}, {"shape": array.shape})
    if dtype.kind == "T":
        return encode_strings(array)
    description = described(dtype)
    if description is None or dtype.hasobject:
        return None
    native = _native(dtype)
    if native != dtype:
        array = array.astype(native, order="K")
    kind = "records" if type(array) is np.recarray else "complex" if native == np.complex128 else "array"
    return EncodedObject("numpy", kind, {"data": _data_of(np.asarray(array), native)}, {"dtype": description})


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which numbers are stored, which every reader can use."""
    return dtype.newbyteorder("=") if dtype.kind in "iufcmMU" else dtype


def _data_of(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return an array's bytes as one that a file can hold as it is: a view, unless its elements have padding."""
    if dtype.kind in "mM":
        return array.view(np.int64)
    if is_plain(array):
        return array
    if not dtype.itemsize:
        return np.empty((*array.shape, 0), np.uint8)
    if dtype == np.complex128:
        return array[..., np.newaxis].view(np.float64)
    data = array[..., np.newaxis].view(np.uint8)
    return data if _used_bytes(dtype).all() else _without_padding(data, dtype)


def _without_padding(data: npt.NDArray[np.uint8], dtype: np.dtype[Any]) -> npt.NDArray[np.uint8]:
    """Return a copy with zeros for padding, in which whatever was in memory would be saved."""
    return np.where(_used_bytes(dtype), data, np.uint8(0))


@cache
def _used_bytes(dtype: np.dtype[Any]) -> npt.NDArray[np.bool_]:
    """Return, for each byte of an element, whether it is not padding."""
    used = np.zeros(dtype.itemsize, np.bool_)
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.tile(_used_bytes(base), int(np.prod(shape)))
    if dtype.fields is not None:
        for field, offset in (entry[:2] for entry in dtype.fields.values()):
            used[offset : offset + field.itemsize] |= _used_bytes(field)
        return used
    if dtype.type not in {np.longdouble, np.clongdouble} or np.finfo(dtype).nmant != _EXTENDED_MANTISSA:
        return ~used
    number = used[: np.dtype(np.longdouble).itemsize].copy()
    is_little = dtype.byteorder == "<" or (dtype.byteorder == "=" and sys.byteorder == "little")
    number[slice(_EXTENDED_NBYTES) if is_little else slice(-_EXTENDED_NBYTES, None)] = True
    return np.tile(number, dtype.itemsize // len(number))


def _decode_dtype(parts: Mapping[str, Any], settings: Mapping[str, Any]) -> np.dtype[Any]:
    del parts
    return dtype_of(settings["dtype"])


def _decode_scalar(parts: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
    del parts
    dtype = dtype_of(settings["dtype"])
    data: Any = settings["data"]
    if type(data) is not (str if dtype.kind == "U" else bytes):
        raise TypeError(f"the data of a {dtype} is a {type(data).__name__}")
    if dtype.kind in "US":  # an array would drop trailing NULs
        return dtype.type(data)
    _check_holds_bytes(dtype)
    raw: Any = data
    if len(raw) != dtype.itemsize:
        raise ValueError(f"{len(raw)} bytes for a {dtype}")
    return np.frombuffer(raw, dtype)[0].copy() if dtype.itemsize else dtype.type(b"")


def _decode_array(parts: Mapping[str, Any], settings: Mapping[str, Any]) -> Array:
    dtype, data = dtype_of(settings["dtype"]), parts["data"]
    _check_holds_bytes(dtype)
    if type(data) is not np.ndarray:
        raise TypeError(f"data is a {type(data).__name__}")
    array = _array_of(data, _native(dtype))
    if dtype.kind == "U" and array.size and np.ascontiguousarray(array).view("<u4").max() > _LARGEST_CODE_POINT:
        raise ValueError("a character is not in Unicode")
    return array if array.dtype == dtype else array.astype(dtype, order="K")


def _decode_records(parts: Mapping[str, Any], settings: Mapping[str, Any]) -> Array:
    return _decode_array(parts, settings).view(np.recarray)


def _check_holds_bytes(dtype: np.dtype[Any]) -> None:
    """Refuse dtypes whose elements are addresses: NumPy would follow them."""
    if dtype.hasobject or dtype.subdtype is not None or dtype.kind in "OT":
        raise TypeError(f"elements of {dtype} are not plain bytes")


def _array_of(data: Array, dtype: np.dtype[Any]) -> Array:
    if dtype.kind in "mM":
        return _expected(data, np.dtype(np.int64)).view(dtype)
    if dtype in OWN_DTYPES:
        return _expected(data, dtype)
    carrier = np.dtype(np.float64 if dtype == np.complex128 else np.uint8)
    length = dtype.itemsize // carrier.itemsize
    if _expected(data, carrier).shape[-1:] != (length,):
        raise ValueError(f"data of shape {data.shape} for elements of {length} {carrier}")
    if not length:
        return np.ndarray(data.shape[:-1], dtype)
    if data.strides[-1] != carrier.itemsize:
        data = np.ascontiguousarray(data)
    array: Array = data.view(dtype)[..., 0]
    return array if array.flags.aligned else array.copy(order="K")


def _expected(data: Array, dtype: np.dtype[Any]) -> Array:
    if data.dtype != dtype:
        raise TypeError(f"data is {data.dtype} instead of {dtype}")
    return data


def _decode_objects(parts: Mapping[str, Any], settings: Mapping[str, Any]) -> Array:
    items, shape = parts["items"], settings["shape"]
    if type(items) is not list or type(shape) not in {tuple, list} or any(type(n) is not int for n in shape):
        raise TypeError("items or shape is not a list")
    if min(shape, default=0) < 0 or prod(shape) != len(items):
        raise ValueError(f"{len(items)} items in shape {shape!r:.100}")
    array = np.empty(len(items), np.object_)
    for place, item in enumerate(items):  # NumPy would unpack sequences if it got the list
        array[place] = item
    return array.reshape(shape)


_DECODERS: Final = {
    "array": _decode_array,
    "complex": _decode_array,
    "dtype": _decode_dtype,
    "objects": _decode_objects,
    "records": _decode_records,
    "scalar": _decode_scalar,
    "strings": decode_strings,
}

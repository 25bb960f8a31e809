"""What is data of NumPy but no array that a file holds as it is, taken apart and put together.

kind           parts                              settings
scalar                                            dtype, data: the bytes, or the text of a `numpy.str_`
dtype                                             dtype (see `_numpy_dtypes` for the form)
complex        data: F64, one dimension more      dtype: that of the array, complex128
array          data, as follows                   dtype: that of the array
                 of big-endian numbers: the same numbers, little endian
                 of dates and times: I64 of the same shape
                 of anything else (text, structured, longdouble, int4): U8, the bytes of an element in one
                 dimension more; those that hold nothing, such as 6 of a longdouble's 16, are zero
objects        items: a list of them, in C order  shape
bit_generator  the arrays of its state            bit_generator: its name; numbers of its state; seed, if known
random_generator, random_state
               bit_generator                      has_gauss and gauss of a `RandomState`
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tensorkeep.arrays._base import EncodedObject
from tensorkeep.arrays.numpy._dtypes import described, dtype_of
from tensorkeep.arrays.numpy._padding import has_padding, without_padding
from tensorkeep.arrays.numpy._random import RANDOM_KINDS, put_random_together, take_random_apart
from tensorkeep.dtypes import BY_NUMPY
from tensorkeep.errors import FormatError, TensorkeepError, UnsupportedError

Array = npt.NDArray[Any]

_LARGEST_CODE_POINT: Final = 0x10FFFF


def _is_plain(array: Array) -> bool:
    dtype = array.dtype
    if dtype.isbuiltin == _BY_ANOTHER_LIBRARY:
        return dtype.isnative and dtype.name in BY_NUMPY
    return dtype in _PLAIN_DTYPES


_BY_ANOTHER_LIBRARY: Final = 2
"""What `numpy.dtype.isbuiltin` says of the dtypes of ml_dtypes."""

_PLAIN_DTYPES: Final = frozenset(np.dtype(row.numpy) for row in BY_NUMPY.values() if row.is_in_numpy)
"""Those of NumPy itself, in the machine's byte order."""

PLAIN_CLASSES: Final = {np.ndarray: _is_plain, np.memmap: _is_plain}
"""Classes of arrays that a file may hold as they are."""


def take_numpy_apart(value: Any) -> EncodedObject | None:
    """Take apart what is data of NumPy."""
    if isinstance(value, np.ndarray):
        return _take_array_apart(value) if type(value) in PLAIN_CLASSES else None
    if isinstance(value, np.generic):
        return _take_scalar_apart(value)
    if isinstance(value, np.dtype):
        description = described(value)
        return None if description is None else EncodedObject("numpy", "dtype", {}, {"dtype": description})
    return take_random_apart(value)


def _take_scalar_apart(value: np.generic) -> EncodedObject | None:
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
        "numpy", "scalar", {}, {"dtype": described(dtype), "data": without_padding(data, dtype).tobytes()}
    )


def _take_array_apart(array: Array) -> EncodedObject | None:
    dtype = array.dtype
    if dtype == np.object_:
        return EncodedObject("numpy", "objects", {"items": list(array.flat)}, {"shape": array.shape})
    description = described(dtype)
    if description is None or dtype.hasobject:
        return None
    native = _native(dtype)
    if native != dtype:
        array = array.astype(native, order="K")
    kind = "complex" if native == np.complex128 else "array"
    return EncodedObject("numpy", kind, {"data": _data_of(np.asarray(array), native)}, {"dtype": description})


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which numbers are stored, which every reader can use."""
    return dtype.newbyteorder("=") if dtype.kind in "iufcmMU" else dtype


def _data_of(array: Array, dtype: np.dtype[Any]) -> Array:
    """View an array as one that a file holds as it is: it shares its memory, unless some of that holds nothing."""
    if dtype.kind in "mM":
        return array.view(np.int64)
    if _is_plain(array):
        return array
    if not dtype.itemsize:
        return np.empty((*array.shape, 0), np.uint8)
    if dtype == np.complex128:
        return array[..., np.newaxis].view(np.float64)
    data = array[..., np.newaxis].view(np.uint8)
    return without_padding(data, dtype) if has_padding(dtype) else data


def put_numpy_together(kind: str, parts: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
    """Put together what `take_numpy_apart` gave."""
    if kind not in _KINDS and kind not in RANDOM_KINDS:
        raise UnsupportedError(f"NumPy has no values of kind {kind!r:.100}", hint="A later version may know it")
    try:
        if kind in RANDOM_KINDS:
            return put_random_together(kind, parts, settings)
        return _KINDS[kind](parts, settings)
    except TensorkeepError:
        raise
    except (TypeError, ValueError, LookupError, OverflowError, MemoryError, AttributeError) as error:
        raise FormatError(f"the parts of NumPy's {kind} do not fit together", found=f"{error!s:.500}") from None


def _put_dtype(parts: Mapping[str, Any], settings: Mapping[str, Any]) -> np.dtype[Any]:
    del parts
    return dtype_of(settings["dtype"])


def _put_scalar(parts: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
    del parts
    dtype = dtype_of(settings["dtype"])
    data: Any = settings["data"]
    if type(data) is not (str if dtype.kind == "U" else bytes):
        raise TypeError(f"the data of a {dtype} is a {type(data).__name__}")
    if dtype.kind in "US":  # an array would lose NULs at the end
        return dtype.type(data)
    _check_holds_bytes(dtype)
    raw: Any = data
    if len(raw) != dtype.itemsize:
        raise ValueError(f"{len(raw)} bytes for a {dtype}")
    return np.frombuffer(raw, dtype)[0].copy() if dtype.itemsize else dtype.type(b"")


def _put_array(parts: Mapping[str, Any], settings: Mapping[str, Any]) -> Array:
    dtype, data = dtype_of(settings["dtype"]), parts["data"]
    _check_holds_bytes(dtype)
    if type(data) is not np.ndarray:
        raise TypeError(f"data is a {type(data).__name__}")
    array = _array_of(data, _native(dtype))
    if dtype.kind == "U" and array.size and np.ascontiguousarray(array).view("<u4").max() > _LARGEST_CODE_POINT:
        raise ValueError("a character that Unicode has not")
    return array if array.dtype == dtype else array.astype(dtype, order="K")


def _check_holds_bytes(dtype: np.dtype[Any]) -> None:
    """Refuse dtypes whose elements are addresses: they would be followed."""
    if dtype.hasobject or dtype.subdtype is not None or dtype.kind in "OT":
        raise TypeError(f"elements of {dtype} are no plain bytes")


def _array_of(data: Array, dtype: np.dtype[Any]) -> Array:
    if dtype.kind in "mM":
        return _expected(data, np.dtype(np.int64)).view(dtype)
    if dtype in _PLAIN_DTYPES:
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
        raise TypeError(f"data is of {data.dtype} instead of {dtype}")
    return data


def _put_objects(parts: Mapping[str, Any], settings: Mapping[str, Any]) -> Array:
    items, shape = parts["items"], settings["shape"]
    if type(items) is not list or type(shape) not in {tuple, list} or any(type(n) is not int for n in shape):
        raise TypeError("items are no list, or the shape is none")
    if min(shape, default=0) < 0 or prod(shape) != len(items):
        raise ValueError(f"{len(items)} items in shape {shape!r:.100}")
    array = np.empty(len(items), np.object_)
    for place, item in enumerate(items):
        array[place] = item
    return array.reshape(shape)


_KINDS: Final = {
    "array": _put_array,
    "complex": _put_array,
    "dtype": _put_dtype,
    "objects": _put_objects,
    "scalar": _put_scalar,
}

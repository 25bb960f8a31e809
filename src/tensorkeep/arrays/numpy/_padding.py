"""Bytes of NumPy's elements that hold nothing: whatever was there in memory would be saved with them."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_EXTENDED_NBYTES: Final = 10
"""Bytes of a number of x87, which NumPy keeps in 12 or 16."""

_EXTENDED_MANTISSA: Final = 63


def has_padding(dtype: np.dtype[Any]) -> bool:
    """Say whether elements have bytes that hold nothing."""
    return not _used(dtype).all()


def without_padding(data: npt.NDArray[np.uint8], dtype: np.dtype[Any]) -> npt.NDArray[np.uint8]:
    """Return a copy of elements in which bytes that hold nothing are zero."""
    return np.where(_used(dtype), data, np.uint8(0))


@cache
def _used(dtype: np.dtype[Any]) -> npt.NDArray[np.bool_]:
    """Say of each byte of an element whether it holds anything."""
    used = np.zeros(dtype.itemsize, np.bool_)
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.tile(_used(base), int(np.prod(shape)))
    if dtype.fields is not None:
        for field, offset in (entry[:2] for entry in dtype.fields.values()):
            used[offset : offset + field.itemsize] |= _used(field)
        return used
    if dtype.type not in {np.longdouble, np.clongdouble} or np.finfo(dtype).nmant != _EXTENDED_MANTISSA:
        return ~used
    number = used[: np.dtype(np.longdouble).itemsize].copy()
    is_little = dtype.byteorder == "<" or (dtype.byteorder == "=" and sys.byteorder == "little")
    number[slice(_EXTENDED_NBYTES) if is_little else slice(-_EXTENDED_NBYTES, None)] = True
    return np.tile(number, dtype.itemsize // len(number))

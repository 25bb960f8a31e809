"""The tensors of a file at the places that were read for them, as NumPy arrays to compare with `np.load`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.formats import TensorPlace
from tensorkeep.tensors import c_strides
from tensorkeep.transport import ByteRange, ByteSource


def array_of(source: ByteSource, place: TensorPlace) -> Any:
    """Return the array at a place."""
    contents = place.source or source
    dtype = np.dtype(ALL_BY_NAME[place.dtype].numpy).newbyteorder(">" if place.is_big_endian else "<")
    elements = c_strides(place.shape) if place.strides is None else place.strides
    strides = [stride * dtype.itemsize for stride in elements]
    last = sum((extent - 1) * stride for extent, stride in zip(place.shape, strides, strict=True))
    nbytes = 0 if 0 in place.shape else last + dtype.itemsize
    data = bytes(contents.read(ByteRange(place.start, place.start + nbytes)))
    return np.ndarray(place.shape, dtype, data, 0, strides)


def same(a: Any, b: Any) -> bool:
    """Say whether two arrays have one shape, one dtype but for its byte order, and the same bits."""
    native = b.dtype.newbyteorder("=")
    return (
        a.shape == b.shape
        and a.dtype.newbyteorder("=") == native
        and a.astype(native).tobytes() == b.astype(native).tobytes()
    )

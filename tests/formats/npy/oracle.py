"""The arrays of a file as tensorkeep describes them, made into NumPy arrays to compare with `np.load`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.formats.archives import InflatedSource
from tensorkeep.formats.npy import ArrayFile, StoredArray
from tensorkeep.transport import ByteSource


def array_of(source: ByteSource, file: ArrayFile, array: StoredArray) -> Any:
    """Return an array by the place, strides and byte order that were read for it."""
    member = file.members[array.member]
    contents = InflatedSource(source, member) if member.is_compressed else None
    span = type(member.span)(0, member.nbytes) if contents else member.span
    data = bytes((contents or source).read(span))
    dtype = np.dtype(ALL_BY_NAME[array.dtype].numpy).newbyteorder(">" if array.is_big_endian else "<")
    strides = [stride * dtype.itemsize for stride in array.strides]
    return np.ndarray(array.shape, dtype, data, array.start, strides)


def same(a: Any, b: Any) -> bool:
    """Say whether two arrays have one shape, one dtype but for its byte order, and the same bits."""
    native = b.dtype.newbyteorder("=")
    return (
        a.shape == b.shape
        and a.dtype.newbyteorder("=") == native
        and a.astype(native).tobytes() == b.astype(native).tobytes()
    )

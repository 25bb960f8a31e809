"""The datatype of a tensor's elements, as h5py writes it. Pure."""

from __future__ import annotations

import struct
from typing import Final

from tensorkeep.dtypes import DType

_FIXED, _FLOAT, _STRING, _OPAQUE, _ENUM, _VARIABLE = 0, 1, 3, 5, 8, 9
_VERSION: Final = 0x10
_IS_SIGNED: Final = 8

_FLOATS: Final = {"F16": (10, 5, 15), "F32": (23, 8, 127), "F64": (52, 11, 1023)}
"""Bits of the mantissa, bits of the exponent, and its bias."""

_WHOLE: Final = {"U8": 1, "I8": 1, "U16": 2, "I16": 2, "U32": 4, "I32": 4, "U64": 8, "I64": 8}
DATASET_DTYPES: Final = frozenset((*_WHOLE, *_FLOATS, "BOOL", "BF16"))
"""Names of the dtypes that a dataset can have. HDF5 itself has no bfloat16: an attribute says what the bytes are."""


def datatype_of(dtype: DType) -> bytes:
    """Return the datatype for a dtype, little-endian."""
    if dtype.name in _FLOATS:
        return _float(dtype.itemsize, *_FLOATS[dtype.name])
    if dtype.name == "BOOL":
        names = b"FALSE".ljust(8, b"\0") + b"TRUE".ljust(8, b"\0")
        return _head(_ENUM, 2, 1) + _whole(1, is_signed=True) + names + b"\0\1"
    if dtype.name in _WHOLE:
        return _whole(dtype.itemsize, is_signed=dtype.name.startswith("I"))
    return _head(_OPAQUE, 0, dtype.itemsize)


def text_datatype() -> bytes:
    """Return the datatype of texts of any length, in UTF-8."""
    return _head(_VARIABLE, 0x0101, 16) + _head(_STRING, 0x10, 1)


def _head(kind: int, bits: int, nbytes: int) -> bytes:
    return bytes([_VERSION | kind]) + bits.to_bytes(3, "little") + nbytes.to_bytes(4, "little")


def _whole(nbytes: int, *, is_signed: bool) -> bytes:
    return _head(_FIXED, _IS_SIGNED if is_signed else 0, nbytes) + struct.pack("<HH", 0, 8 * nbytes)


def _float(nbytes: int, n_mantissa: int, n_exponent: int, bias: int) -> bytes:
    implied_bit, sign_at = 0x20, 8 * nbytes - 1
    properties = struct.pack("<HHBBBBI", 0, 8 * nbytes, n_mantissa, n_exponent, 0, n_mantissa, bias)
    return _head(_FLOAT, implied_bit | sign_at << 8, nbytes) + properties

"""The header of a NumPy array, as bytes. Pure."""

from __future__ import annotations

from typing import Final

from tensorkeep.dtypes import ALL_BY_NAME, DType
from tensorkeep.formats.npy._elements import LETTERS
from tensorkeep.formats.npy._header import MAGIC
from tensorkeep.limits import MAX_NDIM

_ALIGNMENT: Final = 64
"""The header is a multiple of so many bytes, as NumPy makes it."""


def _code_of(dtype: DType) -> str | None:
    letter = LETTERS.get(dtype.numpy.rstrip("0123456789"))
    return f"{'|' if dtype.itemsize == 1 else '<'}{letter}{dtype.itemsize}" if letter else None


_CODES: Final = {name: code for name, dtype in ALL_BY_NAME.items() if (code := _code_of(dtype)) is not None}

ARRAY_DTYPES: Final = frozenset(_CODES)
"""Names of the dtypes that NumPy's files have a name for; bfloat16 and narrower floats are not among them."""

MAX_ARRAY_NDIM: Final = MAX_NDIM
"""Dimensions that NumPy allows."""


def emit_array_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Return all bytes before the data of an array in C order."""
    text = f"{{'descr': {_CODES[dtype]!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode("latin-1")
    start = len(MAGIC) + 4
    padded = text + b" " * (-(start + len(text) + 1) % _ALIGNMENT) + b"\n"
    return MAGIC + b"\x01\x00" + len(padded).to_bytes(2, "little") + padded

"""Packed bits to numbers: bits of words, tables of narrow floating-point numbers, and powers of two. Pure."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

E2M1: Final = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
"""What four bits mean as a sign, two bits of exponent and one of mantissa."""

_FLOATS: Final = {
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
}


@cache
def _table_of(dtype: str) -> Floats:
    """Return what each byte means as a number of eight bits."""
    import ml_dtypes

    narrow = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, _FLOATS[dtype]))
    return np.asarray(narrow.astype(np.float32))


def numbers(stored: Array, dtype: str) -> Floats:
    """Return stored elements of a dtype as numbers; F8 by a table, which is faster than a cast."""
    if dtype in _FLOATS:
        return np.asarray(_table_of(dtype)[stored.view(np.uint8)])
    return stored.astype(np.float32)


@cache
def _powers() -> Floats:
    with np.errstate(over="ignore"):
        return np.exp2(np.arange(256, dtype=np.float64) - 127).astype(np.float32)


def powers_of_two(exponents: Bytes) -> Floats:
    """Return 2 ** (byte - 127), as libraries that keep exponents in U8 compute it; 255 is infinite."""
    return np.asarray(_powers()[exponents])


@cache
def _pairs(table: bytes, *, is_high_first: bool) -> npt.NDArray[np.complex64]:
    """Return two numbers for each byte, as one element: one look-up is faster than two."""
    of_four = np.frombuffer(table, np.float32)
    low, high = of_four[np.arange(256) & 15], of_four[np.arange(256) >> 4]
    pairs = np.stack((high, low) if is_high_first else (low, high), axis=-1)
    return np.ascontiguousarray(pairs).view(np.complex64)[:, 0]


def nibbles(packed: Bytes, table: Floats, *, is_high_first: bool = False) -> Floats:
    """Return two numbers of a table of 16 for each byte, side by side along the last dimension."""
    pairs = _pairs(table.tobytes(), is_high_first=is_high_first).take(packed)
    return np.asarray(pairs.view(np.float32))


@cache
def _apart(bits: int) -> Array:
    """Return the numbers in each byte, as one element: one look-up is faster than several."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers_of = np.arange(256, dtype=np.uint8)[:, None] >> shifts & np.uint8((1 << bits) - 1)
    return np.ascontiguousarray(numbers_of).view(f"u{len(shifts)}")[:, 0]


def unpacked(words: Array, bits: int) -> Bytes:
    """Return the unsigned numbers of a few bits in rows of words, lowest bits first, across words.

    The last dimension must be whole groups: a multiple of `bits` words, which hold 32 numbers each `bits`.
    """
    raw = np.ascontiguousarray(words.astype("<i4", copy=False)).view(np.uint8)
    if bits == 8:
        return raw
    if 8 % bits == 0:
        return np.asarray(_apart(bits).take(raw).view(np.uint8))
    stream = np.unpackbits(raw, axis=-1, bitorder="little").reshape(*raw.shape[:-1], -1, bits)
    return np.asarray(np.packbits(stream, axis=-1, bitorder="little")[..., 0])

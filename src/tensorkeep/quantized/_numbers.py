"""Packed bits to numbers: bits of words, tables of narrow floating-point numbers, and powers of two. Pure."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import Arithmetic

Array: TypeAlias = Any
"""An array of NumPy, or a tensor on a device: formulas are the same for both."""

Floats: TypeAlias = Any
"""The same, of F32."""

_Table: TypeAlias = npt.NDArray[np.float32]

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
def _table_of(dtype: str) -> _Table:
    """Return what each byte means as a number of eight bits."""
    import ml_dtypes

    narrow = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, _FLOATS[dtype]))
    return np.asarray(narrow.astype(np.float32))


def numbers(ops: Arithmetic, stored: Array, dtype: str) -> Floats:
    """Return stored elements of a dtype as numbers; F8 by a table, which is faster than a cast by NumPy."""
    return ops.look_up(_table_of(dtype), _bytes_of(ops, stored)) if dtype in _FLOATS else ops.floats(stored)


@cache
def _powers() -> _Table:
    with np.errstate(over="ignore"):
        return np.exp2(np.arange(256, dtype=np.float64) - 127).astype(np.float32)


def powers_of_two(ops: Arithmetic, exponents: Array) -> Floats:
    """Return 2 ** (byte - 127), as libraries that keep exponents in U8 compute it; 255 is infinite."""
    return ops.look_up(_powers(), _bytes_of(ops, exponents))


def _bytes_of(ops: Arithmetic, stored: Array) -> Array:
    """Return elements of eight bits as U8; there may be only one, without dimensions."""
    return ops.view(stored, "uint8") if stored.shape else ops.view(stored.reshape(1), "uint8").reshape(())


def unpacked(ops: Arithmetic, words: Array, bits: int) -> Array:
    """Return the unsigned numbers of a few bits in rows of words, lowest bits first, across words.

    The last dimension must be whole groups: a multiple of `bits` words, which hold 32 numbers each `bits`.
    """
    return ops.apart(ops.view(words, "uint8"), bits)

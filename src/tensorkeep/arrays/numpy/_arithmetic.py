"""Operations on NumPy's arrays for formulas of quantized numbers: `Arithmetic`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]


class NumpyArithmetic:
    """Operations of NumPy. Small tables take the place of shifts: one look-up is faster than several operations."""

    def floats(self, array: Array) -> Floats:
        """Return numbers as F32."""
        return array.astype(np.float32)

    def shorts(self, array: Array) -> Array:
        """Return numbers as I16."""
        return array.astype(np.int16)

    def integers(self, array: Array) -> Array:
        """Return numbers as I64."""
        return array.astype(np.int64)

    def view(self, array: Array, dtype: str) -> Array:
        """Return the memory of an array, lowest byte first, as another dtype."""
        if sys.byteorder == "big" and array.dtype.kind in "iu":
            array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        return np.ascontiguousarray(array).view(np.dtype(dtype).newbyteorder("<"))

    def constant(self, table: Array) -> Array:
        """Return the table."""
        return table

    def look_up(self, table: Array, places: Array) -> Array:
        """Return the elements, or rows, of a table at places."""
        return np.asarray(table.take(places, axis=0))

    def pairs(self, table: Floats, packed: Bytes, *, is_high_first: bool = False) -> Floats:
        """Return two elements of a table for each byte."""
        pairs = _pairs(table.tobytes(), is_high_first=is_high_first).take(packed)
        return np.asarray(pairs.view(np.float32))

    def apart(self, packed: Bytes, bits: int) -> Bytes:
        """Return the numbers of some bits in rows of bytes."""
        if bits == 8:
            return packed
        if bits == 1:
            return np.unpackbits(packed, axis=-1, bitorder="little")
        if 8 % bits == 0:
            return np.asarray(_apart(bits).take(packed).view(np.uint8))
        stream = np.unpackbits(packed, axis=-1, bitorder="little").reshape(*packed.shape[:-1], -1, bits)
        return np.asarray(np.packbits(stream, axis=-1, bitorder="little")[..., 0])

    def positions(self, places: range) -> Array:
        """Return whole numbers in ascending order."""
        return np.arange(places.start, places.stop)

    def take(self, array: Array, places: Array, axis: int) -> Array:
        """Return what is at places along a dimension."""
        return np.asarray(array.take(places, axis=axis))

    def repeat(self, array: Array, n: int) -> Array:
        """Return each element `n` times."""
        return np.repeat(array, n)

    def join(self, arrays: Sequence[Array]) -> Array:
        """Return arrays as one."""
        return np.concatenate(arrays, axis=-1)

    def pad(self, array: Array, n: int) -> Array:
        """Return an array with zeros added."""
        return np.concatenate([array, np.zeros((*array.shape[:-1], n), array.dtype)], axis=-1)

    def where(self, condition: Array, chosen: Any, other: Any) -> Array:
        """Return elements of one array or of another."""
        return np.asarray(np.where(condition, chosen, other))

    def wait(self) -> None:
        """Do nothing: operations are complete when they return."""


@cache
def _pairs(table: bytes, *, is_high_first: bool) -> npt.NDArray[np.complex64]:
    """Return two numbers for each byte, as one element."""
    of_four = np.frombuffer(table, np.float32)
    low, high = of_four[np.arange(256) & 15], of_four[np.arange(256) >> 4]
    pairs = np.stack((high, low) if is_high_first else (low, high), axis=-1)
    return np.ascontiguousarray(pairs).view(np.complex64)[:, 0]


@cache
def _apart(bits: int) -> Array:
    """Return the numbers in each byte, as one element."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers_of = np.arange(256, dtype=np.uint8)[:, None] >> shifts & np.uint8((1 << bits) - 1)
    return np.ascontiguousarray(numbers_of).view(f"u{len(shifts)}")[:, 0]

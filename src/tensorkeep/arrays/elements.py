"""A tensor's elements as unsigned integers of their width: the form in which they are moved (imports NumPy).

Elements narrower than a byte (F4, F6) are packed in files, and one per byte in memory. Packed, they are one stream of
bits, lowest first: the first of two F4 elements is the low half of a byte (torch's `float4_e2m1fn_x2`), and four F6
elements fill three bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorkeep.arrays._base import LARGEST_E4M3
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import BY_NAME, DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import DtypeError, LimitError, TensorkeepError

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

_ALIGNMENT = 16
"""Bytes of the largest element, a C128."""


def unpack(packed: Bytes, bits: int, first: int, n_elements: int) -> Bytes:
    """Return packed elements from number `first` on, one per byte."""
    if bits == 4:
        both = np.empty((len(packed), 2), np.uint8)
        np.bitwise_and(packed, 0x0F, out=both[:, 0])
        np.right_shift(packed, 4, out=both[:, 1])
        return both.reshape(-1)[first : first + n_elements]
    stream: npt.NDArray[np.uint8] = np.unpackbits(packed, bitorder="little")
    stream = stream[first * bits : (first + n_elements) * bits].reshape(n_elements, bits)
    return np.packbits(stream, axis=1, bitorder="little").reshape(n_elements)


def pack(elements: npt.NDArray[Any], bits: int) -> Bytes:
    """Return elements of one byte each as a stream of bits."""
    if bits == 4:
        pairs = elements.reshape(-1, 2)
        packed: Bytes = np.bitwise_or(pairs[:, 0] & 0x0F, pairs[:, 1] << 4, dtype=np.uint8)
        return packed
    spread = np.unpackbits(elements.reshape(-1, 1), axis=1, count=bits, bitorder="little")
    return np.packbits(spread.reshape(-1), bitorder="little")


def known_dtype(name: str, entry: TensorEntry) -> DType:
    """Return the dtype of a tensor that is about to be loaded."""
    dtype = entry.known_dtype
    if dtype is None:
        raise DtypeError(
            f"tensor `{name}` has a dtype that this version does not know",
            tensor=name,
            expected="one of " + ", ".join(BY_NAME),
            found=entry.dtype,
            hint="It can be listed and copied, not loaded",
        )
    return dtype


def elements_of(name: str, entry: TensorEntry, buffer: Buffer, offset: int) -> Array:
    """Return a tensor's elements as unsigned integers: a view of the buffer if they are aligned."""
    dtype = known_dtype(name, entry)
    with within_numpys_limits(name, entry.shape):
        if dtype.is_packed:
            packed = np.frombuffer(buffer, np.uint8, entry.nbytes, offset)
            return unpack(packed, dtype.bits, 0, entry.n_elements).reshape(entry.shape)
        stored = np.dtype(dtype.bits_name).newbyteorder("<")
        array: Array = np.ndarray(entry.shape, stored, buffer, offset)
        if not array.flags.aligned or not stored.isnative:
            return array.astype(stored.newbyteorder("="))
        return array


def equal_bytes(a: memoryview, b: memoryview) -> bool:
    """Say whether two buffers of the same length have equal bytes; other threads run meanwhile."""
    n_words = len(a) // 8
    if n_words and not np.array_equal(np.frombuffer(a, np.uint64, n_words), np.frombuffer(b, np.uint64, n_words)):
        return False
    return a[8 * n_words :] == b[8 * n_words :]


def castable(numbers: Array, dtype: DType) -> Array:
    """Return floating-point numbers from which NumPy casts to a dtype: E4M3 has no infinity, so these are clipped."""
    if dtype.bits < 32:  # ml_dtypes cannot cast between every two narrow floats; F32 holds all of them
        numbers = numbers.astype(np.float32, copy=False)
    return np.asarray(numbers.clip(-LARGEST_E4M3, LARGEST_E4M3)) if dtype.name == "F8_E4M3" else numbers


def aligned(data: Bytes) -> Bytes:
    """Return the bytes, copied if elements of some dtype could not be read where they are."""
    return data if data.ctypes.data % _ALIGNMENT == 0 else data.copy()


def aligned_block(nbytes: int, alignment: int) -> Bytes:
    """Return memory of its own that begins at a multiple of `alignment` bytes."""
    memory = np.empty(nbytes + alignment - 1, np.uint8)
    begin = -memory.__array_interface__["data"][0] % alignment
    return memory[begin : begin + nbytes]


def resolve(
    elements: npt.NDArray[Any], dtype: DType, *, is_conj: bool = False, is_neg: bool = False, swap: bool = False
) -> None:
    """Swap the bytes of C-contiguous elements, conjugate and negate them, in place, by their bits alone."""
    bits = dtype.bits // 2 if dtype.is_complex else dtype.bits
    if bits < 8 or not (swap or is_conj or is_neg):
        return
    parts = elements.reshape(-1).view(f"u{bits // 8}")
    sign = parts.dtype.type(1 << (bits - 1))
    if swap:
        parts.byteswap(inplace=True)
    if is_conj and dtype.is_complex:
        parts[1::2] ^= sign
    if is_neg and (dtype.is_float or dtype.is_complex):
        parts ^= sign
    elif is_neg:
        np.negative(parts, out=parts)


@contextmanager
def within_numpys_limits(name: str, shape: tuple[int, ...]) -> Iterator[None]:
    """Turn NumPy's refusal of a shape into a `LimitError`."""
    try:
        yield
    except TensorkeepError:
        raise
    except (ValueError, OverflowError) as error:
        raise LimitError(
            f"tensor `{name}` has more dimensions or elements than NumPy can hold",
            tensor=name,
            found=f"{list(shape)} ({error})",
        ) from None

"""A tensor's bytes as unsigned numbers, one per element: the form in which elements are moved without being read.

Elements narrower than a byte (F4, F6) are packed in files and one per byte in memory. Those of a tensor are one
stream of bits, lowest bits first: of two F4 elements the first is in the low half of the byte (torch's
`float4_e2m1fn_x2`), and four F6 elements fill three bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import BY_NAME, DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import DtypeError, LimitError, TensorkeepError

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

_ALIGNMENT = 16
"""Bytes of the largest element, a complex number of two doubles."""


def unpack(packed: Bytes, bits: int, first: int, n_elements: int) -> Bytes:
    """Spread packed elements to one per byte."""
    if bits == 4:
        both = np.empty((len(packed), 2), np.uint8)
        np.bitwise_and(packed, 0x0F, out=both[:, 0])
        np.right_shift(packed, 4, out=both[:, 1])
        return both.reshape(-1)[first : first + n_elements]
    stream: npt.NDArray[np.uint8] = np.unpackbits(packed, bitorder="little")
    stream = stream[first * bits : (first + n_elements) * bits].reshape(n_elements, bits)
    return np.packbits(stream, axis=1, bitorder="little").reshape(n_elements)


def pack(elements: npt.NDArray[Any], bits: int) -> Bytes:
    """Close up elements to a stream of bits."""
    if bits == 4:
        pairs = elements.reshape(-1, 2)
        packed: Bytes = np.bitwise_or(pairs[:, 0] & 0x0F, pairs[:, 1] << 4, dtype=np.uint8)
        return packed
    spread = np.unpackbits(elements.reshape(-1, 1), axis=1, count=bits, bitorder="little")
    return np.packbits(spread.reshape(-1), bitorder="little")


def known_dtype(name: str, entry: TensorEntry) -> DType:
    """Return the dtype of a tensor that is to be loaded."""
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
    """View a tensor's bytes as unsigned numbers, one per element."""
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


def aligned(data: Bytes) -> Bytes:
    """Return bytes that elements of every dtype can be read from where they lie."""
    return data if data.ctypes.data % _ALIGNMENT == 0 else data.copy()


@contextmanager
def within_numpys_limits(name: str, shape: tuple[int, ...]) -> Iterator[None]:
    """Turn NumPy's refusal of a shape in the block into an error of this package."""
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

"""Elements narrower than a byte (F4, F6), packed in files and one per byte in memory.

The elements of a tensor are one stream of bits, lowest bits first: of two F4 elements the first is in the low half
of the byte (torch's `float4_e2m1fn_x2`), and four F6 elements fill three bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["pack", "unpack"]

Bytes = npt.NDArray[np.uint8]


def unpack(packed: Bytes, bits: int, first: int, n_elements: int) -> Bytes:
    """Spread packed elements to one per byte.

    Args:
        packed: Shape (n,), the bytes that hold the elements.
        bits: Bits of an element, 4 or 6.
        first: Elements to skip at the start of `packed`.
        n_elements: Elements to return.

    Returns:
        Shape (n_elements,), the element's bits in the low bits of each byte.
    """
    if bits == 4:
        both = np.empty((len(packed), 2), np.uint8)
        np.bitwise_and(packed, 0x0F, out=both[:, 0])
        np.right_shift(packed, 4, out=both[:, 1])
        return both.reshape(-1)[first : first + n_elements]
    stream: npt.NDArray[np.uint8] = np.unpackbits(packed, bitorder="little")
    stream = stream[first * bits : (first + n_elements) * bits].reshape(n_elements, bits)
    return np.packbits(stream, axis=1, bitorder="little").reshape(n_elements)


def pack(elements: npt.NDArray[Any], bits: int) -> Bytes:
    """Close up elements to a stream of bits.

    Args:
        elements: Shape (n,), uint8, one element in the low bits of each byte; n * bits is a multiple of 8.
        bits: Bits of an element, 4 or 6.

    Returns:
        Shape (n * bits / 8,), the packed bytes.
    """
    if bits == 4:
        pairs = elements.reshape(-1, 2)
        packed: Bytes = np.bitwise_or(pairs[:, 0] & 0x0F, pairs[:, 1] << 4, dtype=np.uint8)
        return packed
    spread = np.unpackbits(elements.reshape(-1, 1), axis=1, count=bits, bitorder="little")
    return np.packbits(spread.reshape(-1), bitorder="little")

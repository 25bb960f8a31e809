"""Numbers and scales to ggml's blocks, and back. Pure.

A block has 64 numbers: the four scales of 16 numbers each, then eight bytes for each 16. ggml puts numbers 0 to 7 in
the low halves of these bytes and 8 to 15 in the high halves, the other libraries even and odd ones. A scale is the
same byte, but ggml ignores its sign and takes NaN for zero, so such scales have no equal.
"""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tensorkeep.errors import RefusedError

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]

_WORD: Final = np.dtype(np.uint32)
"""Four bytes at once, which is four times as fast."""

N_PER_BLOCK: Final = 64
_N_SCALES: Final = 4
_N_BYTES: Final = 32
_LARGEST: Final = 0x7E
"""The largest byte that is the same scale everywhere: 448."""


def to_blocks(name: str, data: Any, scales: Any) -> Bytes:
    """Return rows of blocks from rows of pairs and rows of scales."""
    given = _same_everywhere(name, _bytes_of(scales))
    words = _bytes_of(data).reshape(-1, _WORD.itemsize).view(_WORD).reshape(-1, 2)
    numbers = np.empty((len(words), _WORD.itemsize, 2), np.uint8)
    for half, crossed in enumerate(_crossed(words[:, 0], words[:, 1])):
        numbers[..., half] = crossed.view(np.uint8).reshape(-1, _WORD.itemsize)
    n_blocks = given.shape[-1] // _N_SCALES
    blocks = np.empty((*given.shape[:-1], n_blocks, _N_SCALES + _N_BYTES), np.uint8)
    blocks[..., :_N_SCALES] = given.reshape(*blocks.shape[:-1], _N_SCALES)
    blocks[..., _N_SCALES:] = numbers.reshape(*blocks.shape[:-1], _N_BYTES)
    return blocks.reshape(*given.shape[:-1], n_blocks * (_N_SCALES + _N_BYTES))


def data_of(blocks: Any) -> Bytes:
    """Return rows of pairs from rows of blocks."""
    apart = _split(blocks)
    numbers = apart[..., _N_SCALES:].reshape(-1, _WORD.itemsize, 2)
    low, high = (np.ascontiguousarray(numbers[..., half]).view(_WORD)[:, 0] for half in range(2))
    return (
        np.stack(_crossed(low, high), axis=-1).view(np.uint8).reshape(*apart.shape[:-2], apart.shape[-2] * _N_BYTES)
    )


def scales_of(name: str, blocks: Any) -> npt.NDArray[Any]:
    """Return rows of scales from rows of blocks."""
    apart = _split(blocks)
    given = apart[..., :_N_SCALES].reshape(*apart.shape[:-2], apart.shape[-2] * _N_SCALES)
    return _same_everywhere(name, given).view(ml_dtypes.float8_e4m3fn)


def _bytes_of(rows: Any) -> Bytes:
    return np.ascontiguousarray(rows).view(np.uint8)


def _split(blocks: Any) -> Bytes:
    rows = _bytes_of(blocks)
    return rows.reshape(*rows.shape[:-1], rows.shape[-1] // (_N_SCALES + _N_BYTES), _N_SCALES + _N_BYTES)


def _crossed(first: Words, second: Words) -> tuple[Words, Words]:
    """Return the low halves of both's bytes, and the high halves of both's. It is its own inverse."""
    low, high, four = np.uint32(0x0F0F0F0F), np.uint32(0xF0F0F0F0), np.uint32(4)
    return (first & low) | ((second << four) & high), ((first >> four) & low) | (second & high)


def _same_everywhere(name: str, scales: Bytes) -> Bytes:
    if scales.size and scales.max() > _LARGEST:
        place = np.unravel_index(int((scales > _LARGEST).argmax()), scales.shape)
        raise RefusedError(
            f"a scale of tensor `{name}` has no equal in the other layout",
            tensor=name,
            expected="a number from 0 to 448, which GGUF and the other libraries read alike",
            found=f"{scales[place].view(ml_dtypes.float8_e4m3fn)} (0x{scales[place]:02X})",
        )
    return scales

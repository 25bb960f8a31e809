"""How the words of two tensors differ, block by block. Pure.

Words are the unsigned integers of a dtype's width. A difference is the new word minus the old one, modulo two to the
number of its bits. So it is exact for every dtype, works both ways (the old word is the new one minus it), and is
small where floating-point numbers moved by a few units in the last place, since neighboring numbers are neighboring
words.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.buffers import Buffer
from tensorkeep.deltas.encoding._planes import PlaneReader, code_plane
from tensorkeep.errors import FormatError

Words = npt.NDArray[Any]

BLOCK_LENGTH: Final = 2**19
"""Words in a block: many enough for good codes, few enough for memory; the last block of a tensor has the rest."""

_HEAD: Final = Struct("<BII")
"""Whether positions are listed, how many words differ, and bytes of the gaps between them."""

_DENSE: Final = 1
_SPARSE: Final = 2

_MAX_LISTED: Final = 4
"""Positions are listed if at most one word in so many differs."""

_LONG_GAP: Final = 255
"""A byte that adds so much to the next gap; all others end a gap."""


class Differences(msgspec.Struct, frozen=True, eq=False):
    """How the words of one block differ.

    Attributes:
        positions: Words that differ, in order; None if `values` has one for each word.
        values: Their differences.
    """

    positions: npt.NDArray[np.int64] | None
    values: Words

    def apply(self, words: Words, way: Literal["forward", "back"] = "forward") -> None:
        """Turn old words into new ones in place, or new ones into old ones."""
        where: Any = slice(None) if self.positions is None else self.positions
        if way == "forward":
            words[where] += self.values
        else:
            words[where] -= self.values


def differences(old: Words, new: Words) -> Differences | None:
    """Compare the words of a block; None if all are equal."""
    changed = np.flatnonzero(old != new)
    if not len(changed):
        return None
    if len(changed) * _MAX_LISTED > len(new):
        return Differences(None, new - old)
    return Differences(changed, new[changed] - old[changed])


def encode(block: Differences) -> bytes:
    """Encode the differences of a block."""
    planes = [code_plane(plane) for plane in _planes(_folded(block.values))]
    if block.positions is None:
        return b"".join([_HEAD.pack(_DENSE, len(block.values), 0), *planes])
    gaps = _gaps(block.positions)
    return b"".join([_HEAD.pack(_SPARSE, len(block.values), len(gaps)), code_plane(gaps), *planes])


def decode(data: Buffer, n_words: int, dtype: np.dtype[Any]) -> Differences:
    """Decode the differences of a block of so many words."""
    reader = PlaneReader(data)
    way, n_changed, gaps_nbytes = _HEAD.unpack(reader.take(_HEAD.size))
    positions = None
    if way == _SPARSE and n_changed <= n_words and gaps_nbytes <= n_changed + n_words // _LONG_GAP:
        positions = _positions(reader.plane(gaps_nbytes), n_changed, n_words)
    elif way != _DENSE or n_changed != n_words or gaps_nbytes:
        raise FormatError(
            "a block of differences is malformed",
            expected=f"at most {n_words:,} words",
            found=f"form {way} of {n_changed:,} words, {gaps_nbytes:,} bytes of gaps",
        )
    folded = np.empty((n_changed, dtype.itemsize), np.uint8)
    for place in range(dtype.itemsize):
        folded[:, place] = reader.plane(n_changed)
    reader.end()
    return Differences(
        positions, _unfolded(folded.reshape(-1).view(dtype.newbyteorder("<")).astype(dtype, copy=False))
    )


def _folded(values: Words) -> Words:
    """Return differences of both signs as small numbers: 0, -1, 1, -2, 2 as 0, 1, 2, 3, 4."""
    signed = values.view(f"i{values.itemsize}")
    folded: Words = ((signed << 1) ^ (signed >> (8 * values.itemsize - 1))).view(values.dtype)
    return folded


def _unfolded(folded: Words) -> Words:
    one = folded.dtype.type(1)
    unfolded: Words = (folded >> one) ^ (np.zeros_like(folded) - (folded & one))
    return unfolded


def _planes(words: Words) -> list[npt.NDArray[np.uint8]]:
    """Return the lowest bytes of all words, then their second bytes, and so on."""
    stored = words.astype(words.dtype.newbyteorder("<"), copy=False)
    columns = stored.view(np.uint8).reshape(len(words), words.itemsize)
    return [np.ascontiguousarray(columns[:, place]) for place in range(words.itemsize)]


def _gaps(positions: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Return the equal words before each position, since the one before it, in bytes."""
    gaps = np.diff(positions, prepend=-1) - 1
    n_long = gaps // _LONG_GAP
    if not n_long.any():
        return gaps.astype(np.uint8)
    ends = np.cumsum(n_long + 1) - 1
    coded = np.full(int(ends[-1]) + 1, _LONG_GAP, np.uint8)
    coded[ends] = gaps % _LONG_GAP
    return coded


def _positions(gaps: npt.NDArray[np.uint8], n_changed: int, n_words: int) -> npt.NDArray[np.int64]:
    ends = np.flatnonzero(gaps != _LONG_GAP)
    if len(ends) != n_changed or (len(gaps) and gaps[-1] == _LONG_GAP):
        raise FormatError("positions of differences are malformed", expected=f"{n_changed:,}", found=f"{len(ends):,}")
    positions = np.cumsum(gaps, dtype=np.int64)[ends] + np.arange(n_changed)
    if n_changed and positions[-1] >= n_words:
        raise FormatError("differences are beyond the end of their block", expected=f"at most {n_words:,} words")
    return positions

"""Random bits for each element of a tensor, by its position: the same whatever part is read. Pure.

The numbers are SplitMix64's (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014),
which mixes a counter. The counter starts at a key of the seed and the tensor's name.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tensorkeep.digests import digest_of
from tensorkeep.tensors.indexing import Selection, c_strides

Words = npt.NDArray[np.uint64]

_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_MIXERS: Final = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST: Final = np.uint64(31)


def key_of(seed: int, name: str) -> int:
    """Return the key of a tensor's random bits."""
    return int.from_bytes(digest_of(f"{seed} {name}".encode(errors="surrogatepass"))[:8], "little")


def words_of_run(key: int, start: int, stop: int) -> Words:
    """Return 64 bits for each position of a run."""
    return _mixed(key, np.arange(start, stop, dtype=np.uint64))


def halves_of_run(key: int, start: int, stop: int) -> npt.NDArray[np.uint32]:
    """Return 32 bits for each position of a run: two neighbors share a word."""
    first = start // 2
    words = words_of_run(key, first, -(-stop // 2)).astype("<u8", copy=False)
    return words.view("<u4")[start - 2 * first : stop - 2 * first]


def words_of_block(key: int, selection: Selection) -> Words:
    """Return 64 bits for each element of a selection's block."""
    return _mixed(key, _positions(selection))


def halves_of_block(key: int, selection: Selection) -> npt.NDArray[np.uint32]:
    """Return 32 bits for each element of a selection's block."""
    positions = _positions(selection)
    words = _mixed(key, positions >> np.uint64(1))
    return (words >> ((positions & np.uint64(1)) << np.uint64(5))).astype(np.uint32)


def _positions(selection: Selection) -> Words:
    """Return the position of each element of a block, in C order of the whole tensor."""
    total: Any = np.zeros((1,) * len(selection.shape), np.uint64)
    for axis, (places, stride) in enumerate(zip(selection.axes, c_strides(selection.shape), strict=True)):
        along = np.asarray(places, np.uint64) * np.uint64(stride)
        total = total + along.reshape(-1, *(1,) * (len(selection.shape) - axis - 1))
    return np.broadcast_to(total, selection.block_shape)


def _mixed(key: int, positions: Words) -> Words:
    mixed = (positions + np.uint64(1)) * _STEP
    mixed += np.uint64(key)
    for shift, factor in _MIXERS:
        mixed ^= mixed >> shift
        mixed *= factor
    mixed ^= mixed >> _LAST
    return mixed

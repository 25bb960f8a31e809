"""LZF, the fast compression that h5py brings along. Pure.

A chunk is a sequence of steps. A byte below 32 is followed by that many bytes and one more, to be taken as they are.
Any other byte means a copy of earlier output: its upper three bits are the length less 2, where 7 adds the next byte;
its lower five bits and one more byte are the distance less 1. Facts: liblzf, `lzf_d.c`.
"""

from __future__ import annotations

from typing import Final

from tensorkeep.buffers import Buffer
from tensorkeep.errors import FormatError

MAX_LZF_RATIO: Final = 88
"""Three bytes make at most 264."""

_N_LITERALS: Final = 32
_LONG: Final = 7


def decompress_lzf(data: Buffer, max_nbytes: int) -> bytes:
    """Return what a chunk holds, which is refused if it is more than `max_nbytes`."""
    view = memoryview(data).cast("B").tobytes()
    out = bytearray()
    place, stop = 0, len(view)
    try:
        while place < stop and len(out) <= max_nbytes:
            control = view[place]
            place += 1
            if control < _N_LITERALS:
                end = place + control + 1
                if end > stop:
                    raise FormatError("a chunk ends before its LZF data does")
                out += view[place:end]
                place = end
                continue
            length = control >> 5
            if length == _LONG:
                length += view[place]
                place += 1
            distance = ((control & 31) << 8) + view[place] + 1
            place += 1
            _copy(out, distance, length + 2)
    except IndexError:
        raise FormatError("a chunk ends before its LZF data does") from None
    if len(out) > max_nbytes:
        raise FormatError("a chunk decompresses to more than its shape has", expected=f"at most {max_nbytes:,} bytes")
    return bytes(out)


def _copy(out: bytearray, distance: int, length: int) -> None:
    """Append bytes of the output; those that it appends itself repeat."""
    start = len(out) - distance
    if start < 0:
        raise FormatError("a chunk copies bytes from before its start", found=f"{distance:,} bytes back")
    if distance >= length:
        out += out[start : start + length]
    else:
        pattern = out[start:]
        out += (pattern * (length // distance + 1))[:length]

"""Snappy's block format: a length, then literals and copies of what came before. Pure.

TensorFlow and LevelDB compress the blocks of a table with it, each by itself.
"""

from __future__ import annotations

from typing import NoReturn

from tensorkeep.errors import FormatError, LimitError
from tensorkeep.formats.protobuf import parse_varint

_LITERAL, _NEAR, _FAR, _FARTHEST = range(4)
"""The lowest two bits of an element's first byte: a literal, or a copy with an offset of 11, 16 or 32 bits."""


def decompress(data: bytes, max_nbytes: int) -> bytes:
    """Return what Snappy compressed, if it is at most `max_nbytes` long."""
    try:
        nbytes, at = parse_varint(data, 0)
    except IndexError:
        _refuse("no length")
    if nbytes > max_nbytes:
        raise LimitError(
            "a Snappy block is too long when decompressed",
            expected=f"at most {max_nbytes:,} bytes",
            found=f"{nbytes:,}",
        )
    found = bytearray()
    while at < len(data):
        at = _add_element(data, at, found)
        if len(found) > nbytes:
            _refuse("more bytes than its length says")
    if len(found) != nbytes:
        _refuse(f"{len(found):,} of {nbytes:,} bytes")
    return bytes(found)


def _add_element(data: bytes, at: int, found: bytearray) -> int:
    """Add what one element gives, and return where the next one begins."""
    tag = data[at]
    form = tag & 3
    if form == _LITERAL:
        n_extra = max((tag >> 2) - 59, 0)
        start = at + 1 + n_extra
        stop = start + 1 + (int.from_bytes(data[at + 1 : start], "little") if n_extra else tag >> 2)
        if stop > len(data):
            _refuse("a literal beyond the end")
        found += data[start:stop]
        return stop
    stop = at + (2, 3, 5)[form - 1]
    if stop > len(data):
        _refuse("a copy beyond the end")
    low = int.from_bytes(data[at + 1 : stop], "little")
    offset, nbytes = ((tag >> 5 << 8) + low, (tag >> 2 & 7) + 4) if form == _NEAR else (low, (tag >> 2) + 1)
    if not 0 < offset <= len(found):
        _refuse("a copy of what is not there")
    start = len(found) - offset
    if offset >= nbytes:
        found += found[start : start + nbytes]
    else:  # it overlaps what it gives, so it repeats
        found += (found[start:] * (nbytes // offset + 1))[:nbytes]
    return stop


def _refuse(found: str) -> NoReturn:
    raise FormatError("a Snappy block is damaged", found=found)

"""The keys under which an index has the parts of a tensor: name and place in codes that sort as they do. Pure."""

from __future__ import annotations

from typing import Final

from tensorkeep.formats.tensorflow._entries import Slice

FIRST: Final = b"\0"
"""How each such key begins: the number 0. No name of a tensor begins so."""

_END: Final = b"\0\1"
_ESCAPED: Final = {0: b"\0\xff", 255: b"\xff\0"}
_MAX_LENGTH: Final = 10


def slice_key(name: bytes, part: Slice) -> bytes:
    """Return the key of one part of a tensor."""
    text = b"".join(_ESCAPED.get(byte, bytes((byte,))) for byte in name)
    numbers = b"".join(_signed(number) for extent in part for number in extent)
    return FIRST + text + _END + _unsigned(len(part)) + numbers


def _unsigned(number: int) -> bytes:
    """Return a code of a number that is not negative: its length, then its bytes, highest first."""
    nbytes = (number.bit_length() + 7) // 8
    return bytes((nbytes,)) + number.to_bytes(nbytes, "big")


def _signed(number: int) -> bytes:
    """Return a code of any number: as many ones as it has bytes, a zero, and the number; all inverted if negative."""
    positive = ~number if number < 0 else number
    nbytes = min(positive.bit_length() // 7 + 1, _MAX_LENGTH)
    ones = (1 << nbytes) - 1 << 8 * nbytes - nbytes
    code = (ones | positive).to_bytes(nbytes, "big")
    return bytes(byte ^ 255 for byte in code) if number < 0 else code

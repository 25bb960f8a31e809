"""The payload of an extension that holds an array of NumPy: its shape, the name of its dtype, its bytes. Pure.

Most arrays of a model begin with the bytes of another one, so what was parsed once is looked up.
"""

from __future__ import annotations

import re
from math import prod
from typing import Final

from tensorkeep.errors import FormatError, LimitError
from tensorkeep.formats.msgpack._values import Array
from tensorkeep.limits import MAX_I64, MAX_NDIM
from tensorkeep.transport import ByteRange

HEAD_NBYTES: Final = 1024
"""Bytes of a payload that are enough for all but the elements: 9 for each dimension, and 100 for the dtype's name."""

_PARTS: Final = 0x93
"""The first byte of a list of three."""

_COUNTS: Final = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_LENGTHS: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Code to the bytes of the number that follows."""

_EXTENSION_LENGTHS: Final = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_MAX_DTYPE_LENGTH: Final = 100


_USUAL: Final = rb"(\x93[\x90-\x9f](?:[\0-\x7f]|\xcc.|\xcd..|\xce.{4})*+[\xa0-\xbf][a-z0-9_]++)"
"""The shape and the name of the dtype, as Flax writes them. Such bytes mean the same whatever follows them."""

_match_usual = re.compile(_USUAL + rb"[\xc4-\xc6]", re.DOTALL).match
match_extension = re.compile(
    rb"(\xc7.|\xc8..|\xc9.{4})\x01" + _USUAL + rb"(?:\xc4.|\xc5..|\xc6.{4})", re.DOTALL
).match
"""An array from the length of the extension to its elements."""


class ArrayParser:
    """Parses the heads of payloads."""

    def __init__(self) -> None:
        self._parsed: dict[bytes, tuple[tuple[int, ...], str]] = {}

    def usual(self, start: bytes) -> tuple[str, tuple[int, ...], int]:
        """Return dtype, shape and bytes of an array, given all that `match_extension` found before its elements."""
        n_length = _EXTENSION_LENGTHS[start[0]]
        length = int.from_bytes(start[1 : 1 + n_length], "big")
        array = self.parse(start[2 + n_length :], ByteRange(0, length), is_scalar=False)
        return array.dtype, array.shape, array.nbytes

    def parse(self, head: bytes, span: ByteRange, *, is_scalar: bool) -> Array:
        """Parse the head of a payload, which is in this range of the file."""
        usual = _match_usual(head)
        start = usual[1] if usual else b""
        try:
            if start in self._parsed:
                (shape, dtype), at = self._parsed[start], len(start)
            else:
                shape, dtype, at = _shape_and_dtype(head)
                if at == len(start):
                    self._parsed[start] = shape, dtype
            nbytes, at = _length(head, at)
        except IndexError:
            raise FormatError("an array ends before its elements", found=f"{len(span):,} bytes") from None
        if at + nbytes != len(span):
            raise FormatError(
                "the elements of an array do not end where it does",
                expected=f"{len(span) - at:,} bytes",
                found=f"{nbytes:,}",
            )
        return Array(dtype, shape, (ByteRange(span.start + at, span.stop),), is_scalar)


def _shape_and_dtype(head: bytes) -> tuple[tuple[int, ...], str, int]:
    """Return shape and dtype, and where the elements begin with their length."""
    shape, at = _shape(head)
    length, at = _length(head, at)
    if length > _MAX_DTYPE_LENGTH:
        raise FormatError("the name of a dtype is too long", found=f"{length:,} bytes")
    return shape, head[at : at + length].decode("ascii", "backslashreplace"), at + length


def _shape(head: bytes) -> tuple[tuple[int, ...], int]:
    """Return the shape, and where the next part begins."""
    code = head[1]
    if head[0] != _PARTS or (code & 0xF0 != 0x90 and code != 0xDC):
        raise FormatError("an array is not a list of shape, dtype and bytes", found=head[:3].hex(" "))
    n_dimensions, at = (code & 0x0F, 2) if code != 0xDC else (int.from_bytes(head[2:4], "big"), 4)
    if n_dimensions > MAX_NDIM:
        raise LimitError(
            "an array has too many dimensions", expected=f"at most {MAX_NDIM}", found=f"{n_dimensions:,}"
        )
    shape = []
    for _ in range(n_dimensions):
        extent = head[at]
        at += 1
        if extent >= 0x80:
            if extent not in _COUNTS:
                raise FormatError("an extent of an array is not a count", found=f"byte 0x{extent:02x}")
            stop = at + _COUNTS[extent]
            extent, at = int.from_bytes(head[at:stop], "big"), stop
        shape.append(extent)
    if max(*shape, prod(shape), 0, 0) > MAX_I64:
        raise FormatError("no array has such a shape", found=f"{shape!r:.100}")
    return tuple(shape), at


def _length(head: bytes, at: int) -> tuple[int, int]:
    """Return the length of bytes or text, and where they begin."""
    code = head[at]
    if code & 0xE0 == 0xA0:
        return code & 0x1F, at + 1
    if code not in _LENGTHS:
        raise FormatError("a part of an array is neither bytes nor text", found=f"byte 0x{code:02x}")
    stop = at + 1 + _LENGTHS[code]
    return int.from_bytes(head[at + 1 : stop], "big"), stop

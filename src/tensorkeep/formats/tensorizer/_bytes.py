"""Numbers and texts of the index and of headers, read one after another. Pure."""

from __future__ import annotations

import json
import struct
from typing import Any, Final

from tensorkeep.errors import FormatError

_NUMBERS: Final = {code: struct.Struct(f"<{code}") for code in "BHIQq"}


class Cursor:
    """Reads values from bytes, in order; past the end is a `FormatError`."""

    def __init__(self, data: bytes, what: str) -> None:
        self.data = data
        self.position = 0
        self._what = what

    def take(self, nbytes: int) -> bytes:
        """Return the next bytes."""
        start = self.position
        self.position += nbytes
        if self.position > len(self.data):
            raise FormatError(f"{self._what} ends in the middle of a tensor", hint="If it was cut off, get it again")
        return self.data[start : self.position]

    def number(self, code: str) -> int:
        """Return the next number: B, H, I, Q or q, as in `struct`."""
        number = _NUMBERS[code]
        return int(number.unpack(self.take(number.size))[0])

    def counted(self, code: str) -> bytes:
        """Return bytes after their number."""
        return self.take(self.number(code))

    def shape(self, code: str) -> tuple[int, ...]:
        """Return extents after their number."""
        ndim = self.number("B")
        return struct.unpack(f"<{ndim}{code}", self.take(ndim * _NUMBERS[code].size))


def name_of(data: bytes) -> str:
    """Return a tensor's name; the parts of a path in nested data are joined by dots."""
    try:
        if not data.startswith(b"\x1e"):
            return data.decode()
        name = _joined(json.loads(data[1:]))
        name.encode()  # halves of surrogate pairs are no text
    except (ValueError, RecursionError):
        raise FormatError("the name of a tensor is neither a text nor a path", found=f"{data[:100]!r}") from None
    return name


def _joined(parts: Any) -> str:
    if not (isinstance(parts, list) and parts and all(type(part) in {str, int} for part in parts)):
        raise ValueError(parts)
    return ".".join(map(str, parts))

"""The position in a file that is read once from start to end, while most of it is skipped."""

from __future__ import annotations

from typing import Final

from tensorkeep.errors import FormatError
from tensorkeep.transport import ByteRange, ByteSource

_LEAST_NBYTES: Final = 2**14
_MOST_NBYTES: Final = 2**22
_NEAR_NBYTES: Final = 2**17
"""Bytes to skip up to which a longer read that includes them is cheaper than another request."""


class Cursor:
    """Reads a file in order. As long as skips are short, reads become longer and so fewer.

    Attributes:
        nbytes: Size of the file, in bytes.
    """

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self.nbytes = source.nbytes
        self._window: bytes = b""
        self._start = 0  # of the window, in the file
        self._at = 0  # in the window, or after its end
        self._next_nbytes = _LEAST_NBYTES

    @property
    def position(self) -> int:
        """The next byte to be read."""
        return self._start + self._at

    @property
    def n_left(self) -> int:
        """Bytes from here to the end of the file."""
        return self.nbytes - self._start - self._at

    def window(self) -> tuple[bytes, int]:
        """Return bytes that were read, and the place of the next one in them, or after their end."""
        return self._window, self._at

    def byte(self) -> int:
        """Return the next byte."""
        at = self._at
        if at >= len(self._window):
            self._refill(1)
            at = 0
        self._at = at + 1
        return self._window[at]

    def take(self, nbytes: int) -> bytes:
        """Return the next bytes, which the caller has found to be few enough."""
        if self._at + nbytes > len(self._window):
            self._refill(nbytes)
        at = self._at
        self._at = stop = at + nbytes
        return self._window[at:stop]

    def peek(self, nbytes: int) -> bytes:
        """Return the next bytes without passing over them, or fewer at the end of the file."""
        if self._at + nbytes > len(self._window):
            self._refill(min(nbytes, self.n_left))
        return self._window[self._at : self._at + nbytes]

    def number(self, nbytes: int) -> int:
        """Return the next bytes as an unsigned number."""
        return int.from_bytes(self.take(nbytes), "big")

    def skip(self, nbytes: int) -> ByteRange:
        """Pass over bytes, and return where they are."""
        start = self.position
        if nbytes > self.n_left:
            raise self._cut_off(start + nbytes)
        self._at += nbytes
        return ByteRange(start, start + nbytes)

    def _refill(self, nbytes: int) -> None:
        """Read from the position on: at least so many bytes."""
        start = self.position
        if nbytes > self.nbytes - start:
            raise self._cut_off(start + nbytes)
        is_near = self._at - len(self._window) <= _NEAR_NBYTES
        self._next_nbytes = min(2 * self._next_nbytes, _MOST_NBYTES) if is_near else _LEAST_NBYTES
        stop = min(start + max(nbytes, self._next_nbytes), self.nbytes)
        self._window = bytes(self._source.read(ByteRange(start, stop)))
        self._start, self._at = start, 0

    def _cut_off(self, stop: int) -> FormatError:
        return FormatError(
            "the file ends within a value",
            expected=f"at least {stop:,} bytes",
            found=f"{self.nbytes:,}",
            hint="If it was cut off, get it again",
        )

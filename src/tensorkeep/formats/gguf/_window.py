"""The start of a file, read in pieces that grow: a header does not say how long it is."""

from __future__ import annotations

from typing import Final

from tensorkeep.errors import FormatError, LimitError
from tensorkeep.limits import MAX_HEADER_NBYTES
from tensorkeep.transport import ByteRange, ByteSource

_FIRST_NBYTES: Final = 512 * 2**10
"""Bytes of the first piece: the header of a model without a vocabulary, or 8,000 tensors."""

_GROWTH: Final = 4
"""How many times more bytes are read by each further piece: 8 MB, a vocabulary of 150,000, take three."""


class TooShortError(Exception):
    """Parsing needs more of the file than was read.

    Attributes:
        stop: One past the last byte that it needs at least.
    """

    def __init__(self, stop: int) -> None:
        self.stop = stop


class HeaderWindow:
    """The first bytes of a file. `grow` reads more of them, each time in one read.

    Attributes:
        data: The bytes so far.
    """

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self.data = b""
        self.grow(0)

    @property
    def file_nbytes(self) -> int:
        """Size of the whole file."""
        return self._source.nbytes

    def grow(self, stop: int) -> None:
        """Read at least up to a byte, refusing what is beyond the file or longer than any header."""
        if stop > self._source.nbytes:
            raise FormatError(
                "the file ends within its header",
                expected=f"at least {stop:,} bytes",
                found=f"{self._source.nbytes:,}",
                hint="If it was cut off, get it again",
            )
        if stop > MAX_HEADER_NBYTES:
            raise LimitError("the header is too long", expected=f"at most {MAX_HEADER_NBYTES:,} bytes")
        n_read = len(self.data)
        wanted = max(stop, n_read * _GROWTH, _FIRST_NBYTES)
        span = ByteRange(n_read, min(wanted, MAX_HEADER_NBYTES, self._source.nbytes))
        self.data += bytes(self._source.read(span))

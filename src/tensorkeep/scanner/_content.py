"""The unit of scanning: a file, or a member of an archive in it."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import msgspec

from tensorkeep.formats.archives import ends_like_a_zip
from tensorkeep.transport import ByteRange, ByteSource, JoinedSource

HEAD_NBYTES: Final = 2**16
"""Bytes at the start that determine the format."""

_PIECE_NBYTES: Final = 2**20


class Content(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Bytes to scan, and where they are.

    Attributes:
        source: Contains them.
        span: Their range in the source.
        place: Names of members, from the outermost archive to the innermost; empty for the file itself.
        is_copy: Whether they were decompressed and so have no position in the file.
    """

    source: ByteSource
    span: ByteRange
    place: tuple[str, ...] = ()
    is_copy: bool = False

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return len(self.span)

    @property
    def name(self) -> str:
        """Name of the member, or of the file."""
        return self.place[-1] if self.place else self.source.name

    @property
    def member(self) -> str | None:
        """Path through all archives to the member; None for the file itself."""
        return "/".join(self.place) or None

    def head(self) -> bytes:
        """Return the bytes that determine the format, which every format looks at."""
        return self._head

    @cached_property
    def _head(self) -> bytes:
        return self.read(min(self.nbytes, HEAD_NBYTES))

    def after_zeros(self, n_each: int) -> Content:
        """Return the content without the zeros it begins with, as far as they fill blocks of `n_each` bytes."""
        for start in range(0, self.nbytes, _PIECE_NBYTES):
            piece = self.part(start).read(min(_PIECE_NBYTES, self.nbytes - start))
            n_zeros = len(piece) - len(piece.lstrip(b"\0"))
            if n_zeros < len(piece):
                return self.part((start + n_zeros) // n_each * n_each)
        return self.part(self.nbytes)

    def ends_like_a_zip(self) -> bool:
        """Say whether the end looks like the end of a zip archive."""
        return ends_like_a_zip(self.source, self.span)

    def read(self, nbytes: int) -> bytes:
        """Return the first bytes."""
        return bytes(self.source.read(ByteRange(self.span.start, self.span.start + nbytes)))

    def offset(self, position: int | None) -> int | None:
        """Convert a position in the content to a position in the file; None if there is none."""
        return None if self.is_copy or position is None else self.span.start + position

    def part(self, start: int) -> Content:
        """Return the rest of the content from a position."""
        return msgspec.structs.replace(self, span=ByteRange(self.span.start + start, self.span.stop))

    def alone(self) -> ByteSource:
        """Return a source of these bytes and no others."""
        if self.nbytes == self.source.nbytes:
            return self.source
        return JoinedSource([(self.source, self.span)], self.source.name)

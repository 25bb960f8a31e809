"""A piece of a file that is looked through: the file itself, or a member of an archive in it."""

from __future__ import annotations

from typing import Final

import msgspec

from tensorkeep.formats.archives import ends_like_a_zip
from tensorkeep.transport import ByteRange, ByteSource

HEAD_NBYTES: Final = 2**16
"""Bytes by which it is told what something is."""


class Content(msgspec.Struct, frozen=True, eq=False):
    """Bytes, and where they stand.

    Attributes:
        source: Where they are.
        span: Which they are, half-open, in the source.
        place: The members that they are in, from the outermost archive to the innermost; empty for a file itself.
        is_copy: Whether they were decompressed, so that they stand nowhere in the file.
    """

    source: ByteSource
    span: ByteRange
    place: tuple[str, ...] = ()
    is_copy: bool = False

    @property
    def nbytes(self) -> int:
        """How many they are."""
        return len(self.span)

    @property
    def name(self) -> str:
        """Name of the member or file."""
        return self.place[-1] if self.place else self.source.name

    @property
    def member(self) -> str | None:
        """Name of the member, with those of all archives around it; None for a file itself."""
        return "/".join(self.place) or None

    def head(self) -> bytes:
        """Return the first bytes."""
        return self.read(min(self.nbytes, HEAD_NBYTES))

    def ends_like_a_zip(self) -> bool:
        """Say whether a zip archive may stand at the end."""
        return ends_like_a_zip(self.source, self.span)

    def read(self, nbytes: int) -> bytes:
        """Return the first bytes."""
        return bytes(self.source.read(ByteRange(self.span.start, self.span.start + nbytes)))

    def offset(self, position: int | None) -> int | None:
        """Return where a byte stands in the file."""
        return None if self.is_copy or position is None else self.span.start + position

    def part(self, start: int) -> Content:
        """Return the bytes from one on."""
        return msgspec.structs.replace(self, span=ByteRange(self.span.start + start, self.span.stop))

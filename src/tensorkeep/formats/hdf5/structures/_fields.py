"""Little-endian fields of a structure, read one after another. Pure."""

from __future__ import annotations

from tensorkeep.errors import FormatError


class Fields:
    """Bytes with a position."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    @property
    def n_left(self) -> int:
        """Bytes that are left."""
        return len(self.data) - self.position

    def take(self, nbytes: int) -> bytes:
        """Return the next bytes."""
        start = self.position
        stop = start + nbytes
        if stop > len(self.data):
            raise FormatError(
                "a structure ends within a field", expected=f"{nbytes:,} more bytes", found=f"{self.n_left:,}"
            )
        self.position = stop
        return self.data[start:stop]

    def uint(self, nbytes: int) -> int:
        """Return the next unsigned number."""
        start, stop = self.position, self.position + nbytes
        if stop > len(self.data):
            self.take(nbytes)  # which says what is missing
        self.position = stop
        return int.from_bytes(self.data[start:stop], "little")

    def skip(self, nbytes: int) -> None:
        """Skip bytes."""
        self.take(nbytes)

    def expect(self, signature: bytes, what: str) -> None:
        """Skip a signature, which must be there."""
        found = self.take(len(signature))
        if found != signature:
            raise FormatError(
                f"there is no {what} where one should be", expected=f"{signature!r}", found=f"{found!r}"
            )

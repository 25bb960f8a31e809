"""Long values of bytes that are left in the file: the elements of large arrays."""

from __future__ import annotations

import msgspec

from tensorkeep.transport import ByteRange, ByteSource


class Payload(msgspec.Struct, frozen=True, eq=False):
    """Bytes of a pickle that were not read.

    Attributes:
        parts: Where they are, in order; several if an array was pickled in parts.
        is_bytearray: Whether the pickle makes a bytearray of them instead of bytes.
    """

    parts: tuple[tuple[ByteSource, ByteRange], ...]
    is_bytearray: bool = False

    def __len__(self) -> int:
        return sum(len(span) for _, span in self.parts)

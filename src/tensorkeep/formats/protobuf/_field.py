"""One field of a message: its number, how it is written, and where its value is. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from tensorkeep.errors import FormatError
from tensorkeep.transport import ByteRange

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2
FIXED32: Final = 5

_NAMES: Final = {VARINT: "a varint", FIXED64: "8 bytes", LENGTH: "bytes with a length", FIXED32: "4 bytes"}


class Field(msgspec.Struct, frozen=True, gc=False):
    """One field of a message.

    Attributes:
        number: Which field it is.
        wire_type: How its value is written: `VARINT`, `FIXED64`, `LENGTH` or `FIXED32`.
        value: The number, without a sign; of a `LENGTH`, how many bytes it has.
        start: First byte of the value in the source.
        stop: One past its last byte.
    """

    number: int
    wire_type: int
    value: int
    start: int
    stop: int

    def expect(self, *wire_types: int) -> None:
        """Refuse the field if it is written in another way than its schema allows."""
        if self.wire_type not in wire_types:
            raise FormatError(
                f"field {self.number} of a message is written as another type",
                expected=" or ".join(_NAMES[wire_type] for wire_type in wire_types),
                found=f"{_NAMES[self.wire_type]} at byte {self.start:,}",
            )

    @property
    def is_packed(self) -> bool:
        """Whether a repeated number is written as bytes that hold several."""
        return self.wire_type == LENGTH

    @property
    def span(self) -> ByteRange:
        """The bytes of a text, of a message or of packed numbers."""
        self.expect(LENGTH)
        return ByteRange(self.start, self.stop)

    @property
    def uint64(self) -> int:
        """The value of an unsigned number or a bool."""
        self.expect(VARINT)
        return self.value

    @property
    def int64(self) -> int:
        """The value of an int64."""
        self.expect(VARINT)
        return signed64(self.value)

    @property
    def int32(self) -> int:
        """The value of an int32 or of an enumeration: the lowest 32 bits, as every reader takes them."""
        self.expect(VARINT)
        return signed32(self.value)


def signed64(value: int) -> int:
    """Return a 64-bit number with its sign."""
    return value - 2**64 if value >= 2**63 else value


def signed32(value: int) -> int:
    """Return the lowest 32 bits of a number with their sign."""
    low = value & 0xFFFF_FFFF
    return low - 2**32 if low >= 2**31 else low

"""A short message in memory: all its fields at once, for formats that have thousands of such messages. Pure."""

from __future__ import annotations

from typing import Final, TypeAlias

from tensorkeep.errors import FormatError
from tensorkeep.formats.protobuf._field import FIXED32, FIXED64, LENGTH, VARINT
from tensorkeep.formats.protobuf._varints import parse_varint

Value: TypeAlias = int | bytes
"""An unsigned number, or the bytes of a text, of a message or of packed numbers."""

_NBYTES: Final = {FIXED32: 4, FIXED64: 8}


def parse_message(data: bytes) -> list[tuple[int, Value]]:
    """Return number and value of each field, in order."""
    found: list[tuple[int, Value]] = []
    at, stop = 0, len(data)
    try:
        while at < stop:
            tag = data[at]
            at += 1
            if tag > 127:
                tag, at = parse_varint(data, at - 1)
            wire_type = tag & 7
            if wire_type in {VARINT, LENGTH}:
                number = data[at]
                at += 1
                if number > 127:
                    number, at = parse_varint(data, at - 1)
                if wire_type == VARINT:
                    found.append((tag >> 3, number))
                    continue
                nbytes = number
            elif wire_type in _NBYTES:
                nbytes = _NBYTES[wire_type]
            else:
                raise FormatError("a field of a message has a type that is not read", found=f"type {wire_type}")
            value = data[at : at + nbytes]
            at += nbytes
            found.append((tag >> 3, value if wire_type == LENGTH else int.from_bytes(value, "little")))
    except IndexError:
        at = stop + 1
    if at > stop:
        raise FormatError("a message ends within a field", found=f"{stop:,} bytes")
    return found

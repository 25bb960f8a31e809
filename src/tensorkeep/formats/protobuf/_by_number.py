"""The fields of one message by number, for messages that are short enough to be listed."""

from __future__ import annotations

from tensorkeep.errors import FormatError
from tensorkeep.formats.protobuf._field import Field, signed64
from tensorkeep.formats.protobuf._reader import MessageReader
from tensorkeep.formats.protobuf._varints import parse_varint
from tensorkeep.transport import ByteRange


class Message:
    """One message, walked once; `wanted` names the fields to keep, or all of them are."""

    def __init__(
        self, reader: MessageReader, span: ByteRange | None = None, wanted: frozenset[int] | None = None
    ) -> None:
        self.reader = reader
        self._fields: dict[int, list[Field]] = {}
        for field in reader.fields(span):
            if wanted is None or field.number in wanted:
                self._fields.setdefault(field.number, []).append(field)

    def __contains__(self, number: int) -> bool:
        return number in self._fields

    def all(self, number: int) -> list[Field]:
        """Return every field with a number, in the order of the file."""
        return self._fields.get(number, [])

    def one(self, number: int) -> Field | None:
        """Return the only field with a number; None if it is missing. Two are refused: readers would differ."""
        found = self._fields.get(number)
        if found is None:
            return None
        if len(found) > 1:
            raise FormatError(f"a message has field {number} twice", found=f"one at byte {found[1].start:,}")
        return found[0]

    def text(self, number: int, *, max_nbytes: int) -> str:
        """Return the text of a field; empty if it is missing."""
        field = self.one(number)
        return "" if field is None else self.reader.read_text(field.span, max_nbytes=max_nbytes)

    def int64(self, number: int) -> int:
        """Return the number of a field; 0 if it is missing."""
        field = self.one(number)
        return 0 if field is None else field.int64

    def int64s(self, number: int, *, max_nbytes: int) -> tuple[int, ...]:
        """Return the numbers of a repeated field, packed or one by one."""
        found: list[int] = []
        for field in self.all(number):
            if not field.is_packed:
                found.append(field.int64)
                continue
            found += _numbers_in(self.reader.read(field.span, max_nbytes=max_nbytes))
        return tuple(found)


def _numbers_in(data: bytes) -> list[int]:
    found: list[int] = []
    index = 0
    while index < len(data):
        try:
            value, index = parse_varint(data, index)
        except IndexError:
            raise FormatError("packed numbers of a message end within a number") from None
        found.append(signed64(value))
    return found

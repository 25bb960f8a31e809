"""Walks the messages of a source, and reads ahead: many small fields take one read, and long payloads none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tensorkeep.errors import FormatError, LimitError, UnsupportedError
from tensorkeep.formats.protobuf._field import FIXED32, FIXED64, LENGTH, VARINT, Field
from tensorkeep.formats.protobuf._varints import MAX_VARINT_NBYTES, parse_varint
from tensorkeep.limits import MAX_PROTOBUF_FIELDS
from tensorkeep.transport import ByteRange, ByteSource, MemorySource

_HEAD_NBYTES: Final = 2 * MAX_VARINT_NBYTES
"""Most bytes of a field before its payload, and of one without a length."""

_FIRST_NBYTES: Final = 2**16
"""Bytes to read after a jump over a long payload; what follows is the next field's head."""

_MOST_NBYTES: Final = 2**22
"""Bytes to read where field follows field."""

_MAX_NUMBER: Final = 2**29 - 1


class MessageReader:
    """Walks messages, one within another or one after another, best in the order of their bytes.

    `max_fields` bounds the fields of all messages together.
    """

    def __init__(self, source: ByteSource | bytes, *, max_fields: int = MAX_PROTOBUF_FIELDS) -> None:
        self.source = MemorySource(source) if isinstance(source, bytes) else source
        self._max_fields = self._n_left = max_fields
        self._data = b""
        self._start = 0
        self._next_nbytes = _FIRST_NBYTES

    def fields(self, span: ByteRange | None = None) -> Iterator[Field]:
        """Yield the fields of a message in their order; all of the source if no span is named."""
        at, stop = (0, self.source.nbytes) if span is None else (span.start, span.stop)
        if stop > self.source.nbytes:
            raise _ends_early(stop)
        while at < stop:
            field = self.field_at(at, stop)
            at = field.stop
            yield field

    def field_at(self, at: int, stop: int) -> Field:
        """Return the field that begins at a byte of a message that ends within the source."""
        self.count(1)
        if not 0 <= at - self._start <= len(self._data) - _HEAD_NBYTES:
            self._read_ahead(at)
        try:
            field = self._parse_field(at)
        except IndexError:
            raise _ends_early(stop) from None
        if field.stop > stop:
            raise _ends_early(stop)
        return field

    def count(self, n_fields: int) -> None:
        """Count fields, and refuse too many."""
        self._n_left -= n_fields
        if self._n_left < 0:
            raise LimitError("the message has too many fields", expected=f"at most {self._max_fields:,}")

    def _parse_field(self, at: int) -> Field:
        data, start = self._data, self._start
        index = at - start
        tag = data[index]
        index += 1
        if tag > 127:
            tag, index = parse_varint(data, index - 1)
        number, wire_type = tag >> 3, tag & 7
        if not 0 < number <= _MAX_NUMBER:
            raise FormatError("a field of a message has an impossible number", found=f"{number} at byte {at:,}")
        value_start = index
        if wire_type in {LENGTH, VARINT}:
            value = data[index]
            index += 1
            if value > 127:
                value, index = parse_varint(data, index - 1)
            if wire_type == VARINT:
                return Field(number, wire_type, value, start + value_start, start + index)
            return Field(number, wire_type, value, start + index, start + index + value)
        if wire_type in {FIXED32, FIXED64}:
            index += 4 if wire_type == FIXED32 else 8
            value = int.from_bytes(data[value_start:index], "little")
            return Field(number, wire_type, value, start + value_start, start + index)
        if wire_type in {3, 4}:
            raise UnsupportedError("the message has groups, which are not read", found=f"one at byte {at:,}")
        raise FormatError("a field of a message has a type that does not exist", found=f"{wire_type} at byte {at:,}")

    def window(self, start: int, nbytes: int) -> tuple[bytes, int] | None:
        """Return bytes that hold a range, and its place in them, if they were read ahead; else None."""
        index = start - self._start
        return (self._data, index) if 0 <= index <= len(self._data) - nbytes else None

    def read(self, span: ByteRange, *, max_nbytes: int) -> bytes:
        """Return the bytes of a field."""
        if len(span) > max_nbytes:
            raise LimitError(
                "a field of a message is too long",
                expected=f"at most {max_nbytes:,} bytes",
                found=f"{len(span):,} at byte {span.start:,}",
            )
        if self._start <= span.start and span.stop <= self._start + len(self._data):
            return self._data[span.start - self._start : span.stop - self._start]
        return bytes(self.source.read(span))

    def read_text(self, span: ByteRange, *, max_nbytes: int) -> str:
        """Return the text of a field."""
        try:
            return self.read(span, max_nbytes=max_nbytes).decode()
        except UnicodeDecodeError as error:
            raise FormatError(
                "a text of a message is not UTF-8", found=f"byte {span.start + error.start:,}"
            ) from None

    def _read_ahead(self, at: int) -> None:
        """Read the bytes from `at` on: few after a long jump, more and more where field follows field."""
        held_stop = self._start + len(self._data)
        if self._start <= at < held_stop == self.source.nbytes:
            self._data, self._start = self._data[at - self._start :] + bytes(_HEAD_NBYTES), at
            return
        is_next = self._start <= at <= self._start + len(self._data) + _FIRST_NBYTES
        self._next_nbytes = min(2 * self._next_nbytes, _MOST_NBYTES) if is_next else _FIRST_NBYTES
        stop = min(at + self._next_nbytes, self.source.nbytes)
        self._data = bytes(self.source.read(ByteRange(at, stop)))
        self._start = at
        if len(self._data) < _HEAD_NBYTES:
            self._data += bytes(_HEAD_NBYTES)  # so that the last fields are parsed like all others


def _ends_early(stop: int) -> FormatError:
    return FormatError(
        "a message ends within a field", found=f"the end at byte {stop:,}", hint="If it was cut off, get it again"
    )

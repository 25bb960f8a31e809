"""Protocol Buffers as they are on the wire: numbered fields, without a schema and without reading long payloads.

A message is walked field by field, and a field with a length gives only the span of its bytes. Messages within
messages are walked by the format that knows the schema, with the same reader, which reads ahead.

- `_reader`: `MessageReader`, which walks the messages of a source.
- `_by_number`: `Message`, the fields of one message by number.
- `_field`: `Field`, one field of a message.
- `_message`: `parse_message`, all fields of a short message in memory.
- `_varints`: numbers of variable length, one or many.
"""

from tensorkeep.formats.protobuf._by_number import Message
from tensorkeep.formats.protobuf._field import FIXED32, FIXED64, LENGTH, VARINT, Field, signed32, signed64
from tensorkeep.formats.protobuf._message import Value, parse_message
from tensorkeep.formats.protobuf._reader import MessageReader
from tensorkeep.formats.protobuf._varints import (
    count_varints,
    decode_varints,
    emit_varint,
    parse_varint,
    read_varints,
)

__all__ = [
    "FIXED32",
    "FIXED64",
    "LENGTH",
    "VARINT",
    "Field",
    "Message",
    "MessageReader",
    "Value",
    "count_varints",
    "decode_varints",
    "emit_varint",
    "parse_message",
    "parse_varint",
    "read_varints",
    "signed32",
    "signed64",
]

"""Whether bytes are an ONNX model: Protocol Buffers have no magic number, so only its fields tell. Pure."""

from __future__ import annotations

from typing import Final

from tensorkeep.errors import TensorkeepError
from tensorkeep.formats.protobuf import LENGTH, VARINT, MessageReader
from tensorkeep.transport import ByteSource

_TYPES: Final = {
    **dict.fromkeys((1, 5), VARINT),
    **dict.fromkeys((2, 3, 4, 6, 7, 8, 14, 20, 25, 26), LENGTH),
}
"""Number of each field of a model to how it is written."""

_IR_VERSION: Final = 1
_GRAPH: Final = 7
_OPSETS: Final = 8
_FIRST_KEYS: Final = b"\x12\x3a"
_MAX_FIELDS: Final = 100_000

MAGICS: Final = tuple(bytes((0x08, version, key)) for version in range(3, 32) for key in _FIRST_KEYS)
"""How the models of all known writers begin: a version of ONNX since 2017, then a producer or the graph."""


def begins_like_onnx(head: bytes) -> bool:
    """Say whether a file called `.onnx` may be a model, by its first bytes."""
    if not head:
        return False
    return _TYPES.get(head[0] >> 3) == head[0] & 7 and head[0] < 0x80


def is_onnx(source: ByteSource) -> bool:
    """Say whether bytes of any name can only be a model: they have its fields and no others, with a graph."""
    try:
        fields = list(MessageReader(source, max_fields=_MAX_FIELDS).fields())
    except TensorkeepError:
        return False
    numbers = {field.number for field in fields}
    return {_IR_VERSION, _GRAPH, _OPSETS} <= numbers and all(
        _TYPES.get(field.number) == field.wire_type for field in fields
    )

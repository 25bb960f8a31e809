"""Constants that a node holds as plain numbers or text instead of a tensor. Pure."""

from __future__ import annotations

from typing import Final

from tensorkeep.formats._contents import TensorPlace
from tensorkeep.formats._strings import StringArray
from tensorkeep.formats.onnx._dtypes import DATA_TYPES
from tensorkeep.formats.onnx._elements import place_numbers, strings_of
from tensorkeep.formats.protobuf import FIXED32, VARINT, Field, Message, count_varints
from tensorkeep.limits import MAX_HEADER_NBYTES

_FLOAT: Final = DATA_TYPES[1]
_INT64: Final = DATA_TYPES[7]

_F: Final = 2
_I: Final = 3
_S: Final = 4
_FLOATS: Final = 7
_INTS: Final = 8
_STRINGS: Final = 9


def read_constant(attribute_name: str, attribute: Message) -> TensorPlace | StringArray | None:
    """Return the constant in an attribute of a `Constant` node; None if it holds a tensor instead."""
    own = attribute.reader.source
    match attribute_name:
        case "value_float":
            return place_numbers(own, _only(attribute, _F, FIXED32), _FLOAT, ())
        case "value_int":
            return place_numbers(own, _only(attribute, _I, VARINT), _INT64, ())
        case "value_floats":
            floats = attribute.all(_FLOATS)
            return place_numbers(own, floats, _FLOAT, (sum(field.stop - field.start for field in floats) // 4,))
        case "value_ints":
            return place_numbers(own, attribute.all(_INTS), _INT64, (_n_ints(attribute),))
        case "value_string" | "value_strings":
            fields = attribute.all(_S) or attribute.all(_STRINGS)
            return strings_of(own, fields, () if attribute_name == "value_string" else (len(fields),))
    return None


def _n_ints(attribute: Message) -> int:
    """Return how many numbers a list has, packed or not."""
    fields = attribute.all(_INTS)
    packed = [attribute.reader.read(field.span, max_nbytes=MAX_HEADER_NBYTES) for field in fields if field.is_packed]
    return len(fields) - len(packed) + sum(map(count_varints, packed))


def _only(attribute: Message, number: int, wire_type: int) -> list[Field]:
    field = attribute.one(number)
    if field is None:
        return []
    field.expect(wire_type)
    return [field]

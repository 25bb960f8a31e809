"""The names of the tensors in `.pdiparams`, which only the program beside it has: they are stored in their order.

A program is JSON (Paddle's PIR) or a message (`.pdmodel`). It is never run; only its parameters are looked for.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tensorkeep.errors import FormatError
from tensorkeep.formats.protobuf import MessageReader
from tensorkeep.limits import MAX_NAME_LENGTH
from tensorkeep.transport import ByteRange, ByteSource

Shapes = dict[str, tuple[int, ...] | None]
"""Name to shape, sorted by name as the tensors are; None where the program does not say."""

_DENSE_TENSOR: Final = 7


class _Operation(msgspec.Struct, gc=False):
    name: str = msgspec.field(name="#")
    attributes: msgspec.Raw = msgspec.field(name="A", default=msgspec.Raw(b"[]"))
    output: msgspec.Raw = msgspec.field(name="O", default=msgspec.Raw(b"{}"))


class _Block(msgspec.Struct, gc=False):
    ops: list[_Operation]


class _Region(msgspec.Struct, gc=False):
    blocks: list[_Block]


class _Program(msgspec.Struct, gc=False):
    regions: list[_Region]


class _Magic(msgspec.Struct, gc=False):
    magic: str


class _File(msgspec.Struct, gc=False):
    base_code: _Magic
    program: _Program


def parse_json_program(text: bytes) -> Shapes:
    """Return the parameters of a program in JSON."""
    shapes: Shapes = {}
    try:
        file = msgspec.json.decode(text, type=_File)
        operations = [op for region in file.program.regions for block in region.blocks for op in block.ops]
        for operation in operations:
            if operation.name == "p":  # builtin.parameter
                name = msgspec.json.decode(operation.attributes, type=list[Any])[3]
                _add(shapes, name, _shape_of(msgspec.json.decode(operation.output)))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, IndexError) as error:
        raise FormatError("the program is not one of Paddle's", found=f"{error}") from None
    return dict(sorted(shapes.items()))


def _shape_of(output: Any) -> tuple[int, ...] | None:
    """Return the shape in `{"TT": {"D": [dtype, shape, ...]}}`."""
    try:
        shape = output["TT"]["D"][1]
    except (KeyError, IndexError, TypeError):
        return None
    return tuple(shape) if type(shape) is list and all(type(extent) is int for extent in shape) else None


def _add(shapes: Shapes, name: Any, shape: tuple[int, ...] | None) -> None:
    if type(name) is not str or not name or len(name) > MAX_NAME_LENGTH or name in shapes:
        raise FormatError("a parameter of the program has no name of its own", found=f"{name!r:.100}")
    shapes[name] = shape


def parse_program(source: ByteSource) -> Shapes:
    """Return the parameters of a program that is a message: variables that persist, and are tensors."""
    reader = MessageReader(source)
    shapes: Shapes = {}
    for block in reader.fields():
        if block.number == 1:
            for variable in reader.fields(block.span):
                if variable.number == 3:
                    _add_variable(shapes, reader, variable.span)
    return dict(sorted(shapes.items()))


def _add_variable(shapes: Shapes, reader: MessageReader, span: ByteRange) -> None:
    name, kind, is_persistent = "", None, False
    shape: tuple[int, ...] | None = None
    for field in reader.fields(span):
        if field.number == 1:
            name = reader.read_text(field.span, max_nbytes=4 * MAX_NAME_LENGTH)
        elif field.number == 2:
            for part in reader.fields(field.span):
                if part.number == 1:
                    kind = part.int32
                elif part.number == 3:
                    shape = _dense_shape(reader, part.span)
        elif field.number == 3:
            is_persistent = bool(field.uint64)
    if is_persistent and kind == _DENSE_TENSOR:
        _add(shapes, name, shape)


def _dense_shape(reader: MessageReader, span: ByteRange) -> tuple[int, ...] | None:
    for field in reader.fields(span):
        if field.number == 1:
            return tuple(extent.int64 for extent in reader.fields(field.span) if extent.number == 2)
    return None


def structured_names(value: Any) -> dict[str, str]:
    """Return the name in the model for each name in the program, from what Paddle pickles beside the tensors."""
    found: dict[str, str] = {}
    for name, facts in value.items() if type(value) is dict else ():
        structured = facts.get("structured_name") if type(facts) is dict else None
        if type(name) is str and type(structured) is str:
            found[name] = structured
    return found

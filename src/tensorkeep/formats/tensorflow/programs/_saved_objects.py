"""Objects beside the graph of a SavedModel: texts of Keras, and the values that functions were saved with.

Fields have the numbers of TensorFlow's SavedObjectGraph, SavedObject, SavedFunction, SavedBareConcreteFunction,
FunctionSpec, SavedConcreteFunction and StructuredValue.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from tensorkeep.errors import FormatError
from tensorkeep.formats.protobuf import LENGTH, VARINT, Field, MessageReader, read_varints

_OBJECT: Final = 1
_FUNCTION: Final = 2
_USER_OBJECT: Final = 4
_ASSET: Final = 5
_OF_CONCRETE: Final = {6: 2, 8: 4}
"""Fields of an object that is a function, to the field of its arguments; the names of its graphs are field 1."""

_TEXT: Final = 3
_BOUND: Final = 2
_ARGUMENTS: Final = 1
_DEFAULTS: Final = frozenset((b"defaults", b"kwonlydefaults"))
_NAMES: Final = frozenset((13, 55, 56))
"""Values that may name a file: texts and tensors."""

_SEQUENCES: Final = frozenset((51, 52))
_MAPPINGS: Final = {53: 1, 54: 2}
"""Fields of a value that contains others, and of the pairs in it."""

_MAX_METADATA_NBYTES: Final = 2**26
_MAX_NAME_NBYTES: Final = 2**16


class SavedObjects(msgspec.Struct, frozen=True):
    """What a program records about its objects.

    Attributes:
        metadata: Texts of objects; Keras has its configurations there.
        assets: Numbers of the objects that are files of the model.
        bound: Name of a function to the objects that are its last arguments in every call from outside.
        with_names: Functions whose arguments were saved with defaults that may name files.
    """

    metadata: tuple[bytes, ...] = ()
    assets: frozenset[int] = frozenset()
    bound: dict[str, tuple[int, ...]] = {}
    with_names: frozenset[str] = frozenset()


def read_saved_objects(reader: MessageReader, field: Field) -> SavedObjects:
    """Read the objects of a program, which have the numbers of their places."""
    metadata: list[bytes] = []
    assets: set[int] = set()
    bound: dict[str, tuple[int, ...]] = {}
    with_names: set[str] = set()
    number = 0
    for part in reader.fields(field.span):
        if part.wire_type != LENGTH:
            continue
        if part.number == _OBJECT:
            for kind in _parts(reader, part):
                metadata += _texts(reader, kind) if kind.number == _USER_OBJECT else ()
                assets |= {number} if kind.number == _ASSET else set()
                with_names |= _with_names(reader, kind) if kind.number in _OF_CONCRETE else set()
            number += 1
        elif part.number == _FUNCTION:
            name, objects = _function(reader, part)
            if name in bound:
                raise FormatError("two functions of a program have the same name", found=name[:200])
            bound[name] = objects
    return SavedObjects(tuple(metadata), frozenset(assets), bound, frozenset(with_names))


def _texts(reader: MessageReader, user_object: Field) -> Iterator[bytes]:
    for text in _parts(reader, user_object):
        if text.number == _TEXT:
            yield reader.read(text.span, max_nbytes=_MAX_METADATA_NBYTES)


def _with_names(reader: MessageReader, function: Field) -> set[str]:
    """Return the graphs of a function if defaults of its arguments may name files."""
    parts = list(_parts(reader, function))
    specs = [part for part in parts if part.number == _OF_CONCRETE[function.number]]
    arguments = [each for spec in specs for each in _parts(reader, spec) if each.number == _ARGUMENTS]
    if not any(_may_name(reader, value) for each in arguments for value in _defaults(reader, each)):
        return set()
    return {reader.read_text(part.span, max_nbytes=_MAX_NAME_NBYTES) for part in parts if part.number == 1}


def _defaults(reader: MessageReader, arguments: Field) -> Iterator[Field]:
    """Yield the defaults in a description of arguments, which is a named tuple."""
    for pair in _pairs(reader, arguments):
        parts = list(_parts(reader, pair))
        keys = [reader.read(part.span, max_nbytes=_MAX_NAME_NBYTES) for part in parts if part.number == 1]
        if not _DEFAULTS.isdisjoint(keys):
            yield from (part for part in parts if part.number == 2)


def _may_name(reader: MessageReader, value: Field) -> bool:
    """Say whether a value is, or contains, a text or a tensor."""
    waiting = [value]
    while waiting:
        field = waiting.pop()
        parts = list(_parts(reader, field))
        if any(part.number in _NAMES for part in parts):
            return True
        sequences = [part for part in parts if part.number in _SEQUENCES]
        waiting += [item for part in sequences for item in _parts(reader, part) if item.number == 1]
        pairs = _pairs(reader, field)
        waiting += [item for pair in pairs for item in _parts(reader, pair) if item.number == 2]
    return False


def _pairs(reader: MessageReader, value: Field) -> Iterator[Field]:
    """Yield the pairs of a key and a value in a dict or named tuple."""
    for part in _parts(reader, value):
        if part.number in _MAPPINGS:
            yield from (pair for pair in _parts(reader, part) if pair.number == _MAPPINGS[part.number])


def _function(reader: MessageReader, entry: Field) -> tuple[str, tuple[int, ...]]:
    """Return the name of a function, and the objects bound to its last arguments."""
    name = ""
    objects: list[int] = []
    for part in _parts(reader, entry):
        if part.number == 1:
            name = reader.read_text(part.span, max_nbytes=_MAX_NAME_NBYTES)
        elif part.number == 2:
            for inner in reader.fields(part.span):
                if inner.number != _BOUND:
                    continue
                if inner.wire_type == VARINT:
                    objects.append(inner.uint64)
                elif inner.wire_type == LENGTH:
                    objects += [int(each) for numbers in read_varints(reader.source, inner.span) for each in numbers]
    return name, tuple(objects)


def _parts(reader: MessageReader, field: Field) -> Iterator[Field]:
    """Yield the fields that have a length: messages and texts."""
    return (part for part in reader.fields(field.span) if part.wire_type == LENGTH)

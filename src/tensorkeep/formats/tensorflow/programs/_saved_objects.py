"""Objects beside the graph of a SavedModel: texts of Keras, and the values that functions were saved with.

Fields have the numbers of TensorFlow's SavedObjectGraph, SavedObject and SavedConcreteFunction.
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
_TEXT: Final = 3
_BOUND: Final = 2

_MAX_METADATA_NBYTES: Final = 2**26
_MAX_NAME_NBYTES: Final = 2**16


class SavedObjects(msgspec.Struct, frozen=True):
    """What a program records about its objects.

    Attributes:
        metadata: Texts of objects; Keras has its configurations there.
        assets: Numbers of the objects that are files of the model.
        bound: Name of a function to the objects that are its last arguments in every call from outside.
    """

    metadata: tuple[bytes, ...] = ()
    assets: frozenset[int] = frozenset()
    bound: dict[str, tuple[int, ...]] = {}


def read_saved_objects(reader: MessageReader, field: Field) -> SavedObjects:
    """Read the objects of a program, which have the numbers of their places."""
    metadata: list[bytes] = []
    assets: set[int] = set()
    bound: dict[str, tuple[int, ...]] = {}
    number = 0
    for part in reader.fields(field.span):
        if part.wire_type != LENGTH:
            continue
        if part.number == _OBJECT:
            for kind in _parts(reader, part):
                metadata += _texts(reader, kind) if kind.number == _USER_OBJECT else ()
                assets |= {number} if kind.number == _ASSET else set()
            number += 1
        elif part.number == _FUNCTION:
            name, objects = _function(reader, part)
            if name in bound:
                raise FormatError("two functions of a program have the same name", found=name[:200])
            bound[name] = objects
    return SavedObjects(tuple(metadata), frozenset(assets), bound)


def _texts(reader: MessageReader, user_object: Field) -> Iterator[bytes]:
    for text in _parts(reader, user_object):
        if text.number == _TEXT:
            yield reader.read(text.span, max_nbytes=_MAX_METADATA_NBYTES)


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

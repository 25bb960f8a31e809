"""The objects that were saved, and the attributes by which they lead to each other and to variables. Pure."""

from __future__ import annotations

import msgspec

from tensorkeep.errors import FormatError
from tensorkeep.formats.protobuf import Value, parse_message, signed32
from tensorkeep.formats.tensorflow._names import VALUE


class _Object(msgspec.Struct, frozen=True):
    children: dict[str, int]
    key: str | None


class ObjectGraph(msgspec.Struct, frozen=True):
    """The objects of a checkpoint; the first one is what was saved.

    Attributes:
        objects: Each object's attributes, and the key of its value.
        variables: Key to the name that the variable has of itself, such as `"dense/kernel"`.
    """

    objects: list[_Object]
    variables: dict[str, str]

    def find(self, path: str) -> str | None:
        """Return the key of the variable to which a path of attributes leads; None if there is none."""
        at = 0
        for part in path.split("/"):
            child = self.objects[at].children.get(part) if at < len(self.objects) else None
            if child is None:
                return None
            at = child
        return self.objects[at].key if at < len(self.objects) else None


def parse_object_graph(data: bytes) -> ObjectGraph:
    """Read the description of the objects."""
    objects: list[_Object] = []
    variables: dict[str, str] = {}
    for number, node in parse_message(data):
        if number == 1:
            objects.append(_object(node, variables))
    return ObjectGraph(objects, variables)


def _object(node: Value, variables: dict[str, str]) -> _Object:
    children: dict[str, int] = {}
    own_key: str | None = None
    for number, value in _parts(node):
        if number == 1:
            child = dict(_parts(value))
            place = signed32(_number(child.get(1, 0)))
            if place >= 0:
                children[_text(child.get(2, b""))] = place
        elif number == 2:
            attribute = {part: _text(text) for part, text in _parts(value) if part in {1, 2, 3}}
            if attribute.get(1) == VALUE and 3 in attribute:
                own_key = attribute[3]
                variables[own_key] = attribute.get(2, "")
    return _Object(children, own_key)


def _parts(value: Value) -> list[tuple[int, Value]]:
    if isinstance(value, int):
        raise _malformed(f"the number {value}")
    return parse_message(value)


def _number(value: Value) -> int:
    if isinstance(value, bytes):
        raise _malformed(f"{len(value)} bytes")
    return value


def _text(value: Value) -> str:
    if isinstance(value, int):
        raise _malformed(f"the number {value}")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise _malformed("text that is not UTF-8") from None


def _malformed(found: str) -> FormatError:
    return FormatError(
        "the description of the saved objects is not as TensorFlow writes it",
        expected="objects, their attributes and keys",
        found=found,
    )

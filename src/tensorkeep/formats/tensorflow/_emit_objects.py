"""The description of objects in a checkpoint, by which `tf.train.Checkpoint` finds the values of variables. Pure.

Names that are paths, such as `layers.0.kernel` or `model/kernel`, become objects with attributes. The first object
has each variable under its whole name, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tensorkeep.digests import Crc32c, masked
from tensorkeep.formats.protobuf import emit_varint
from tensorkeep.formats.tensorflow._names import VALUE, key_of

_CHILD, _ATTRIBUTE = 1, 2
_LENGTH_NBYTES: Final = 4
"""Lengths below 4 GiB are summed as so many bytes."""


class _Object:
    """An object under construction, and the name of its value if it is a variable."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.children: dict[str, _Object] = {}
        self.name: str | None = None


def emit_object_graph(names: Iterable[str]) -> bytes:
    """Return the description of objects whose variables have these names, and the keys of `key_of`."""
    objects = [_Object(0)]

    def child(parent: _Object, part: str) -> _Object:
        if part not in parent.children:
            parent.children[part] = _Object(len(objects))
            objects.append(parent.children[part])
        return parent.children[part]

    for name in names:
        at = objects[0]
        for part in name.split("/" if "/" in name else "."):
            at = child(at, part)
        at.name = name
    for each in objects[1:]:
        if each.name is not None:
            objects[0].children.setdefault(each.name, each)
    return b"".join(_message(1, _object(each)) for each in objects)


def _object(found: _Object) -> bytes:
    children = [
        _message(_CHILD, b"\x08" + emit_varint(each.number) + _message(2, part.encode()))
        for part, each in found.children.items()
    ]
    if found.name is None:
        return b"".join(children)
    value = _message(1, VALUE.encode()) + _message(2, found.name.encode()) + _message(3, key_of(found.name).encode())
    return b"".join((*children, _message(_ATTRIBUTE, value)))


def _message(field: int, content: bytes) -> bytes:
    return emit_varint(field << 3 | 2) + emit_varint(len(content)) + content


def emit_string(text: bytes) -> tuple[bytes, int]:
    """Return a tensor that is one string, as it is stored, and its CRC-32C."""
    sum_ = Crc32c()
    sum_.update(len(text).to_bytes(_LENGTH_NBYTES, "little"))
    stored = masked(sum_.value()).to_bytes(4, "little")
    sum_.update(stored + text)
    return emit_varint(len(text)) + stored + text, sum_.value()

"""The tree of a checkpoint as data: dicts, lists, tuples, `NamedTupleNode`, `Leaf` and None. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec


class Leaf(msgspec.Struct, frozen=True):
    """An array or a text.

    Attributes:
        name: The keys that lead to it, joined by dots: what the array is called on disk.
        is_text: Whether it is a text; its content is in another file.
    """

    name: str
    is_text: bool = False


class NamedTupleNode(msgspec.Struct, frozen=True):
    """A named tuple, whose class is only a name.

    Attributes:
        class_name: Module and name of the class, such as `"optax:ScaleByAdamState"`.
        fields: Field name to node.
    """

    class_name: str
    fields: dict[str, Any]


def leaves_of(node: Any) -> Iterator[Leaf]:
    """Yield all leaves in order."""
    rest = [node]
    while rest:
        each = rest.pop()
        if isinstance(each, Leaf):
            yield each
        elif isinstance(each, NamedTupleNode):
            rest += reversed(each.fields.values())
        elif isinstance(each, dict):
            rest += reversed(each.values())
        elif isinstance(each, list | tuple):
            rest += reversed(each)

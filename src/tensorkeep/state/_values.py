"""The values that trees of data become, and what stands for an object whose class nobody passed."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from tensorkeep.errors import StateError

Node: TypeAlias = "bool | int | float | str | list[Any] | dict[str, Any] | None"
"""A JSON value, as msgspec decodes it."""

NodeMembers: TypeAlias = dict[str, Any]
"""What the object that stands for a tensor says of it, `{}` where its name and bytes say all."""

NAMED_KINDS: Final = ("dataclass", "enum", "namedtuple")
"""Kinds of objects that are data with the name of a class."""

_ENUM_FIELDS: Final = ("name", "value")


class Encoded(msgspec.Struct, frozen=True):
    """A tree of data, taken apart.

    Attributes:
        tree: All but the elements of tensors, as a JSON value.
        tensors: Name to the tensor itself, in the order of the tree.
    """

    tree: Node
    tensors: dict[str, Any]


class NamedData(msgspec.Struct, frozen=True):
    """A dataclass, enum member or namedtuple as data: what it holds and the name of its class, which is not imported.

    Saving one writes what was read, so data of classes that a program does not know pass through it whole.

    Attributes:
        kind: `"dataclass"`, `"enum"` or `"namedtuple"`.
        class_name: The module and the qualified name of the class, such as `"train.config:Optimizer"`.
        fields: Field name to value, in order; `"name"` (None for combined flags) and `"value"` of an enum member.
    """

    kind: str
    class_name: str
    fields: dict[str, Any]

    def __post_init__(self) -> None:
        """Check the kind and the names."""
        if self.kind not in NAMED_KINDS or type(self.class_name) is not str or type(self.fields) is not dict:
            raise StateError("NamedData needs a kind, the name of a class and a dict", found=f"{self.kind!r}")
        if any(type(name) is not str for name in self.fields):
            raise StateError("fields of NamedData have names", expected="str", found=f"{list(self.fields)!r}")
        if self.kind == "enum" and (tuple(self.fields) != _ENUM_FIELDS or not self._is_named()):
            raise StateError("NamedData of an enum has a name and a value", found=f"{list(self.fields)!r}")

    def __hash__(self) -> int:
        return hash((self.kind, self.class_name, *self.fields, *map(_hash_of, self.fields.values())))

    def _is_named(self) -> bool:
        return self.fields["name"] is None or type(self.fields["name"]) is str


def _hash_of(value: Any) -> int:
    try:
        return hash(value)
    except TypeError:
        return 0

"""An encoded tree, and `NamedData`, for an object whose class was not passed."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from tensorkeep.errors import StateError

Node: TypeAlias = "bool | int | float | str | list[Any] | dict[str, Any] | None"
"""A JSON value, as msgspec decodes it."""

NodeMembers: TypeAlias = dict[str, Any]
"""The members of a tensor's node; `{}` if its name and bytes say everything."""

NAMED_KINDS: Final = ("dataclass", "enum", "namedtuple")
"""Kinds of objects that consist of data and a class name."""

_ENUM_FIELDS: Final = ("name", "value")


class Encoded(msgspec.Struct, frozen=True):
    """An encoded tree.

    Attributes:
        tree: Everything but the elements of tensors, as a JSON value.
        tensors: Name to tensor, in the order of the tree.
    """

    tree: Node
    tensors: dict[str, Any]


class NamedData(msgspec.Struct, frozen=True):
    """A dataclass, enum member or namedtuple as data: its fields and the name of its class, which is not imported.

    `tensorkeep.load` returns it for classes that are not passed as `classes=`. Saving one writes what was read, so
    data of unknown classes passes through a program unchanged.

        config = tensorkeep.load("run.safetensors")["config"]
        config.class_name              # "train.config:Optimizer"
        config.fields["learning_rate"]

    Attributes:
        kind: `"dataclass"`, `"enum"` or `"namedtuple"`.
        class_name: Module and qualified name of the class, such as `"train.config:Optimizer"`.
        fields: Field name to value, in order. An enum member has `"name"` (None for combined flags) and `"value"`.
    """

    kind: str
    class_name: str
    fields: dict[str, Any]

    def __post_init__(self) -> None:
        """Check the kind and the names."""
        if self.kind not in NAMED_KINDS or type(self.class_name) is not str or type(self.fields) is not dict:
            raise StateError("NamedData needs a kind, the name of a class and a dict", found=f"{self.kind!r}")
        if any(type(name) is not str for name in self.fields):
            raise StateError(
                "the names of NamedData's fields must be text", expected="str", found=f"{list(self.fields)!r}"
            )
        if self.kind == "enum" and (tuple(self.fields) != _ENUM_FIELDS or not self._is_named()):
            raise StateError(
                "NamedData of an enum member must have a name and a value", found=f"{list(self.fields)!r}"
            )

    def __hash__(self) -> int:
        return hash((self.kind, self.class_name, *self.fields, *map(_hash_of, self.fields.values())))

    def _is_named(self) -> bool:
        return self.fields["name"] is None or type(self.fields["name"]) is str


def _hash_of(value: Any) -> int:
    try:
        return hash(value)
    except TypeError:
        return 0

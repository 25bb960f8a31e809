"""What is saved or restored, as `orbax.checkpoint.args` names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import msgspec

__all__ = [
    "Composite",
    "JsonRestore",
    "JsonSave",
    "PyTreeRestore",
    "PyTreeSave",
    "StandardRestore",
    "StandardSave",
]


class StandardSave(msgspec.Struct, frozen=True):
    """A pytree to save.

    Attributes:
        item: The pytree; see `tensorkeep.jax.save`.
    """

    item: Any


class StandardRestore(msgspec.Struct, frozen=True):
    """A pytree to restore.

    Attributes:
        item: A pytree of arrays or of `jax.ShapeDtypeStruct`, with shardings; None restores what was saved.
        strict: Whether to refuse leaves that only the checkpoint has.
        fallback_sharding: Where arrays go if `item` is None.
    """

    item: Any = None
    strict: bool = True
    fallback_sharding: jax.sharding.Sharding | None = None


class PyTreeSave(msgspec.Struct, frozen=True):
    """A pytree to save; the same as `StandardSave`.

    Attributes:
        item: The pytree.
    """

    item: Any


class PyTreeRestore(msgspec.Struct, frozen=True):
    """A pytree to restore.

    Attributes:
        item: A pytree of arrays or of `jax.ShapeDtypeStruct`; None restores what was saved.
        restore_args: A pytree of the same structure whose leaves have a `sharding`, as orbax's `ArrayRestoreArgs`.
        partial_restore: Whether to leave out what only the checkpoint has.
    """

    item: Any = None
    restore_args: Any = None
    partial_restore: bool = False


class JsonSave(msgspec.Struct, frozen=True):
    """Plain data to save.

    Attributes:
        item: Dicts, lists, numbers and text.
    """

    item: Any


class JsonRestore(msgspec.Struct, frozen=True):
    """Plain data to restore.

    Attributes:
        item: Ignored; accepted because orbax has it.
    """

    item: Any = None


class Composite(Mapping[str, Any]):
    """Several items of one step by name: arguments when saving, and what was restored.

    Args:
        **items: Arguments by name.
    """

    def __init__(self, **items: Any) -> None:
        self._items = items

    def __getitem__(self, name: str) -> Any:
        return self._items[name]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_items"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __iter__(self) -> Any:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"Composite({', '.join(f'{name}={value!r}' for name, value in self._items.items())})"

"""What is saved or restored, as `orbax.checkpoint.args` names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import msgspec

__all__ = [
    "ArrayRestore",
    "ArraySave",
    "Composite",
    "JaxRandomKeyRestore",
    "JaxRandomKeySave",
    "JsonRestore",
    "JsonSave",
    "NumpyRandomKeyRestore",
    "NumpyRandomKeySave",
    "PyTreeRestore",
    "PyTreeSave",
    "StandardRestore",
    "StandardSave",
]


class StandardSave(msgspec.Struct, frozen=True):
    """A pytree to save.

    Attributes:
        item: The pytree; see `tensorkeep.jax.save`.
        save_args: A pytree of `SaveArgs`. They concern orbax's files, and one with a dtype is refused.
        custom_metadata: Must be None; pass it to `save` of the manager.
    """

    item: Any
    save_args: Any = None
    custom_metadata: Any = None


class StandardRestore(msgspec.Struct, frozen=True):
    """A pytree to restore.

    Attributes:
        item: A pytree of arrays or of `jax.ShapeDtypeStruct`, with shardings; None restores what was saved.
        strict: Whether to refuse leaves that only the checkpoint has.
        support_layout: Must be False: JAX chooses the layouts of arrays on devices.
        fallback_sharding: Where arrays go if `item` is None.
    """

    item: Any = None
    strict: bool = True
    support_layout: bool = False
    fallback_sharding: jax.sharding.Sharding | None = None


class PyTreeSave(msgspec.Struct, frozen=True):
    """A pytree to save; the same as `StandardSave`.

    Attributes:
        item: The pytree.
        save_args: See `StandardSave`.
        ocdbt_target_data_file_size: Ignored: it concerns orbax's files.
        custom_metadata: Must be None; pass it to `save` of the manager.
    """

    item: Any
    save_args: Any = None
    ocdbt_target_data_file_size: int | None = None
    custom_metadata: Any = None


class PyTreeRestore(msgspec.Struct, frozen=True):
    """A pytree to restore.

    Attributes:
        item: A pytree of arrays or of `jax.ShapeDtypeStruct`; None restores what was saved.
        restore_args: A pytree of the same structure of `ArrayRestoreArgs` and `RestoreArgs`.
        transforms: None, or an empty dict, which means the same as `partial_restore`.
        transforms_default_to_original: Ignored, as there are no transforms.
        legacy_transform_fn: Must be None.
        partial_restore: Whether to leave out what only the checkpoint has.
    """

    item: Any = None
    restore_args: Any = None
    transforms: Any = None
    transforms_default_to_original: bool = True
    legacy_transform_fn: Any = None
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


class ArraySave(msgspec.Struct, frozen=True):
    """One array to save.

    Attributes:
        item: The array.
        save_args: `SaveArgs`, which concern orbax's files; one with a dtype is refused.
    """

    item: Any
    save_args: Any = None


class ArrayRestore(msgspec.Struct, frozen=True):
    """One array to restore.

    Attributes:
        item: An array or a `jax.ShapeDtypeStruct`; None restores it as it was saved.
        restore_args: `ArrayRestoreArgs` or `RestoreArgs`.
    """

    item: Any = None
    restore_args: Any = None


class JaxRandomKeySave(msgspec.Struct, frozen=True):
    """A random key of JAX to save, of `jax.random.key` or `jax.random.PRNGKey`.

    Attributes:
        item: The key.
        save_args: See `ArraySave`.
    """

    item: Any
    save_args: Any = None


class JaxRandomKeyRestore(msgspec.Struct, frozen=True):
    """A random key of JAX to restore.

    Attributes:
        restore_args: See `ArrayRestore`.
    """

    restore_args: Any = None


class NumpyRandomKeySave(msgspec.Struct, frozen=True):
    """The state of NumPy's random numbers to save.

    Attributes:
        item: What `numpy.random.get_state` returns.
    """

    item: Any


class NumpyRandomKeyRestore(msgspec.Struct, frozen=True):
    """The state of NumPy's random numbers to restore, for `numpy.random.set_state`."""


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

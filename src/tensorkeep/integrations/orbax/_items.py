"""What arguments of orbax or of `args` mean: by the names of their classes, so that orbax need not be installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import msgspec

from tensorkeep.errors import UnsupportedError
from tensorkeep.integrations.orbax.args import Composite
from tensorkeep.jax import capture


class Wanted(msgspec.Struct, frozen=True):
    """What is restored of one item.

    Attributes:
        like: The template; None for what was saved.
        shardings: Where arrays go; None for where the template's are.
        strict: Whether to refuse what only the checkpoint has.
    """

    like: Any = None
    shardings: Any = None
    strict: bool = True


def items_of(args: Any) -> Mapping[str, Any] | None:
    """Return the arguments of each item, or None if there is one without a name."""
    if isinstance(args, Composite):
        return args
    return dict(args.items()) if _kind_of(args) == "Composite" else None


def captured(args: Any) -> Any:
    """Return what an argument saves, as plain nested data."""
    kind = _kind_of(args)
    if kind in {"StandardSave", "PyTreeSave"}:
        return capture(args.item)
    if kind == "JsonSave":
        return args.item
    raise _unknown(args, "StandardSave, PyTreeSave, JsonSave or a Composite of these")


def wanted(args: Any) -> Wanted:
    """Return what an argument restores."""
    kind = _kind_of(args)
    if args is None or kind == "JsonRestore":
        return Wanted()
    if kind == "StandardRestore":
        shardings = args.fallback_sharding if args.item is None else None
        return Wanted(args.item, shardings, args.strict)
    if kind == "PyTreeRestore":
        if getattr(args, "transforms", None) is not None:
            raise UnsupportedError("transforms are not applied", hint="Restore first, then change the tree")
        return Wanted(args.item, _shardings_of(args.restore_args), not args.partial_restore)
    raise _unknown(args, "StandardRestore, PyTreeRestore, JsonRestore or a Composite of these")


def _shardings_of(restore_args: Any) -> Any:
    """Return a tree of shardings, if there is one."""
    if restore_args is None:
        return None
    return jax.tree.map(_sharding_of, restore_args, is_leaf=lambda leaf: hasattr(leaf, "restore_type"))


def _sharding_of(leaf: Any) -> Any:
    sharding = getattr(leaf, "sharding", None)
    mesh, axes = getattr(leaf, "mesh", None), getattr(leaf, "mesh_axes", None)
    if sharding is None and mesh is not None and axes is not None:
        return jax.sharding.NamedSharding(mesh, axes)
    return sharding


def _kind_of(args: Any) -> str:
    """Return what an argument is; orbax's classes end in `Args`."""
    return type(args).__name__.removesuffix("Args")


def _unknown(args: Any, expected: str) -> UnsupportedError:
    return UnsupportedError("arguments of this kind are not known", expected=expected, found=type(args).__name__)

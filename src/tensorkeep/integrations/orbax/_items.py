"""What is saved and restored for arguments of orbax or of `args`.

Classes are known by their names, so that orbax need not be installed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import jax
import msgspec
import numpy as np

from tensorkeep.arrays.jax.dtypes import is_lacking
from tensorkeep.dtypes import BY_NAME
from tensorkeep.errors import FormatError, SourceMissingError, StateDictMismatchError, UnsupportedError
from tensorkeep.integrations.orbax._older_steps import as_programs_saved, older_tree
from tensorkeep.integrations.orbax.args import Composite
from tensorkeep.integrations.orbax.leaves import (
    OF_ARRAYS,
    SavedSharding,
    SavedShardings,
    as_template,
    described_leaf,
    saved_shardings,
)
from tensorkeep.jax import capture, restore
from tensorkeep.kinds import Opened
from tensorkeep.kinds.orbax import OrbaxCheckpoint
from tensorkeep.tensors import LazyTensor

T = TypeVar("T")

_KINDS: Final = ("Standard", "PyTree", "Json", "Array", "JaxRandomKey", "NumpyRandomKey")
_SAVES: Final = [f"{kind}Save" for kind in _KINDS]
_RESTORES: Final = [f"{kind}Restore" for kind in _KINDS]

_DEFAULT: Final = "default"
"""What orbax calls an item without a name."""

_NAMELESS: Final = "one without a name"

_ITEMS: Final = "orbax.items"
"""Key of metadata with the names of the items of a checkpoint, as JSON; one without it is one item."""


def state_to_save(args: Any) -> tuple[Any, dict[str, str]]:
    """Return what arguments save as plain nested data, and metadata: the names of the items, and shardings."""
    items = items_of(args)
    state = _captured(args) if items is None else {name: _captured(item) for name, item in items.items()}
    metadata = {} if items is None else {_ITEMS: json.dumps(list(items))}
    shardings = saved_shardings(state)
    if shardings:
        metadata[OF_ARRAYS] = msgspec.json.encode(shardings).decode()
    return state, metadata


def items_of(args: Any) -> Mapping[str, Any] | None:
    """Return the arguments of each item, or None if there is one without a name."""
    if isinstance(args, Composite):
        return args
    return dict(args.items()) if _kind_of(args) == "Composite" else None


def names_in(opened: Opened) -> list[str] | None:
    """Return the names of the items of a checkpoint, or None if there is one without a name."""
    if isinstance(opened, OrbaxCheckpoint):
        return opened.item_names
    names = metadata_in(opened, _ITEMS, list[str])
    if names is not None and not (isinstance(opened.tree, dict) and opened.tree.keys() >= set(names)):
        raise FormatError("the metadata names items that the checkpoint does not have", path=opened.path)
    return names


def shardings_in(opened: Opened) -> SavedShardings:
    """Return the shardings that the arrays of a checkpoint were saved with; none of what orbax saved."""
    return SavedShardings(metadata_in(opened, OF_ARRAYS, list[SavedSharding]) or ())


def metadata_in(opened: Opened, key: str, kind: type[T]) -> T | None:
    """Return what JSON in the metadata says, if it is there."""
    text = (opened.metadata or {}).get(key)
    try:
        return None if text is None else msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormatError(f"metadata {key!r} is damaged", path=opened.path, found=str(error)) from None


def restore_items(opened: Opened, args: Any) -> Any:
    """Restore what arguments ask for; several items as a `Composite`."""
    names, asked, shardings = names_in(opened), items_of(args), shardings_in(opened)
    if names is None:
        if asked is None:
            return _restored_item(opened.tree, args, opened.path, shardings)
        if asked.keys() != {_DEFAULT}:
            raise _missing_item(list(asked), [_NAMELESS], opened.path)
        return Composite(**{_DEFAULT: _restored_item(opened.tree, asked[_DEFAULT], opened.path, shardings)})
    chosen = dict.fromkeys(names) if args is None else asked
    if chosen is None or not chosen.keys() <= set(names):
        raise _missing_item(list(chosen or [_NAMELESS]), names, opened.path)
    return Composite(**{
        name: _restored_item(_tree_of(opened, name), item, opened.path, shardings.below(name))
        for name, item in chosen.items()
    })


def _tree_of(opened: Opened, name: str) -> Any:
    return older_tree(opened, name) if isinstance(opened, OrbaxCheckpoint) else opened.tree[name]


def _restored_item(tree: Any, args: Any, path: str, saved: SavedShardings) -> Any:
    """Restore one item from what was saved; what does not fit is said in terms of the caller's arguments."""
    try:
        return as_programs_saved(_restored_as_asked(tree, args, saved))
    except StateDictMismatchError as error:
        hint = f"Nothing was changed; {_kind_of(args)}() without a template restores it as it was saved"
        raise error.with_fields(path=path, hint=hint) from None


def _restored_as_asked(tree: Any, args: Any, saved: SavedShardings) -> Any:
    kind = _kind_of(args)
    if args is None or kind in {"JsonRestore", "NumpyRandomKeyRestore"}:
        return _restored(tree, None, None, saved)
    if kind in {"ArrayRestore", "JaxRandomKeyRestore"}:
        shardings = _shardings_of(args.restore_args)
        return _as_asked(_restored(tree, getattr(args, "item", None), shardings, saved), args.restore_args)
    if kind == "StandardRestore":
        if getattr(args, "support_layout", False):
            raise UnsupportedError("layouts of arrays on devices are not restored", expected="support_layout=False")
        shardings = args.fallback_sharding if args.item is None else None
        return _restored(tree, args.item, shardings, saved, strict=args.strict)
    if kind == "PyTreeRestore":
        if getattr(args, "transforms", None) or getattr(args, "legacy_transform_fn", None) is not None:
            raise UnsupportedError("transforms are not applied", hint="Restore first, then change the tree")
        # With orbax, an empty dict of transforms drops what only the checkpoint has.
        is_partial = args.partial_restore or getattr(args, "transforms", None) is not None
        restored = _restored(tree, args.item, _shardings_of(args.restore_args), saved, strict=not is_partial)
        return _as_asked(restored, args.restore_args)
    raise _unknown(args, f"{', '.join(_RESTORES)} or a Composite of these")


def _captured(args: Any) -> Any:
    """Return what an argument saves, as plain nested data."""
    kind = _kind_of(args)
    if kind in {"JsonSave", "NumpyRandomKeySave"}:
        return args.item
    if kind not in _SAVES:
        raise _unknown(args, f"{', '.join(_SAVES)} or a Composite of these")
    if getattr(args, "custom_metadata", None) is not None:
        raise UnsupportedError(
            "metadata belongs to a step, not to an item", hint="Pass custom_metadata= to save, beside args="
        )
    leaves = jax.tree.leaves(getattr(args, "save_args", None), is_leaf=lambda leaf: hasattr(leaf, "aggregate"))
    if any(getattr(leaf, "dtype", None) is not None for leaf in leaves):
        raise UnsupportedError("leaves are saved as they are", found="save_args with a dtype", hint="Cast them first")
    return capture(args.item)


def _restored(tree: Any, like: Any, shardings: Any, saved: SavedShardings, *, strict: bool = True) -> Any:
    def as_saved(path: Any, leaf: Any) -> Any:
        return _as_saved(leaf, path, saved)

    if like is None:
        like = tree if shardings is not None else jax.tree_util.tree_map_with_path(as_saved, tree, is_leaf=_is_lazy)
    return restore(tree, as_template(like), shardings=shardings, strict=strict)


def _as_saved(leaf: Any, path: Any, saved: SavedShardings) -> Any:
    """Return a template for a leaf: NumPy's arrays stay NumPy's, as they may have dtypes that JAX lacks."""
    if not _is_lazy(leaf) or (leaf.library != "numpy" and not is_lacking(leaf.dtype)):
        described = described_leaf(leaf, path, saved)
        return described if getattr(described, "sharding", None) is not None else leaf
    return np.broadcast_to(np.empty((), jax.numpy.dtype(BY_NAME[leaf.dtype].numpy)), leaf.shape)


def _is_lazy(leaf: Any) -> bool:
    return isinstance(leaf, LazyTensor)


def _shardings_of(restore_args: Any) -> Any:
    """Return a tree of shardings, if there is one."""
    return None if restore_args is None else jax.tree.map(_sharding_of, restore_args, is_leaf=_is_leaf)


def _sharding_of(leaf: Any) -> Any:
    sharding = getattr(leaf, "sharding", None)
    mesh, axes = getattr(leaf, "mesh", None), getattr(leaf, "mesh_axes", None)
    if sharding is None and mesh is not None and axes is not None:
        return jax.sharding.NamedSharding(mesh, axes)
    return sharding


def _as_asked(restored: Any, restore_args: Any) -> Any:
    """Return restored leaves with the dtypes and of the types that `restore_args` ask for."""
    return (
        restored if restore_args is None else jax.tree.map(_leaf_as_asked, restore_args, restored, is_leaf=_is_leaf)
    )


def _leaf_as_asked(asked: Any, leaf: Any) -> Any:
    shape = getattr(asked, "global_shape", None)
    if shape is not None and tuple(shape) != np.shape(leaf):
        raise UnsupportedError(
            "arrays are neither padded nor cut", expected=f"shape {list(np.shape(leaf))}", found=f"{list(shape)}"
        )
    dtype, kind = getattr(asked, "dtype", None), getattr(asked, "restore_type", None)
    if dtype is not None and getattr(leaf, "dtype", dtype) != dtype:
        leaf = leaf.astype(dtype)
    if kind is np.ndarray:
        return np.asarray(leaf)
    return kind(leaf) if kind in (bool, int, float) else leaf


def _is_leaf(leaf: Any) -> bool:
    return hasattr(leaf, "restore_type")


def _kind_of(args: Any) -> str:
    """Return what an argument is; orbax's classes end in `Args`."""
    return type(args).__name__.removesuffix("Args")


def _missing_item(asked: list[str], found: list[str], path: str) -> SourceMissingError:
    return SourceMissingError(
        "the checkpoint has other items",
        path=path,
        expected=", ".join(asked),
        found=", ".join(found),
        hint=f"Name them: args.Composite({found[0]}=...)" if asked == [_NAMELESS] else None,
    )


def _unknown(args: Any, expected: str) -> UnsupportedError:
    return UnsupportedError("arguments of this kind are not known", expected=expected, found=type(args).__name__)

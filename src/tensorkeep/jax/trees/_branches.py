"""One level of a pytree: its keys, its children, and how to make it of others."""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import Any, Literal

import jax
import msgspec
import numpy as np

from tensorkeep.arrays import is_tensor
from tensorkeep.jax.trees._nnx import is_graph, is_variable, split

Form = Literal["mapping", "list", "tuple", "wrapper"]


class Branch(msgspec.Struct, frozen=True):
    """One level of a pytree.

    Attributes:
        form: What it is as plain data: a dict, a list or tuple, or the only child itself.
        keys: Keys of the children: of a dict, or names of fields, or places.
        children: One for each key.
        make: Makes a value of the same class, with the same static fields, of other children.
    """

    form: Form
    keys: list[Any]
    children: list[Any]
    make: Callable[[list[Any]], Any]


class Branches:
    """Finds the branches of one tree, and remembers which classes have none."""

    def __init__(self) -> None:
        self._leaves: set[type] = {bool, int, float, complex, str, bytes, NoneType, np.ndarray}

    def of(self, value: Any) -> Branch | None:
        """Return one level of a pytree; None for a leaf, and for None itself."""
        kind = type(value)
        if kind is dict:
            keys = list(value)
            return Branch("mapping", keys, list(value.values()), lambda items: dict(zip(keys, items, strict=True)))
        if kind is list:
            return Branch("list", list(range(len(value))), value, lambda items: items)
        if kind is tuple:
            return Branch("tuple", list(range(len(value))), list(value), tuple)
        if kind in self._leaves:
            return None
        branch = _registered(value)
        if branch is None:
            self._leaves.add(kind)
        return branch


def _registered(value: Any) -> Branch | None:
    """Return one level of a value whose class jax knows as a pytree."""
    if is_tensor(value):
        return None
    if is_graph(value):
        state, merge = split(value)
        branch = _registered(state)
        if branch is None:
            return None
        return Branch(branch.form, branch.keys, branch.children, lambda items: merge(branch.make(items)))
    structure: Any
    pairs, structure = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda part: part is not value)
    if len(pairs) == 1 and not pairs[0][0]:
        return None
    keys = [_plain_key(path[0]) for path, _ in pairs]
    form: Form = "mapping"
    if is_variable(value) and len(pairs) == 1:
        form = "wrapper"
    elif pairs and all(isinstance(path[0], _PLACES) for path, _ in pairs) and keys == list(range(len(keys))):
        form = "list"
    return Branch(form, keys, [child for _, child in pairs], structure.unflatten)


_PLACES = (jax.tree_util.SequenceKey, jax.tree_util.FlattenedIndexKey)


def _plain_key(entry: Any) -> Any:
    """Return the key, name or place that an entry of a path holds."""
    for attribute in ("key", "name", "idx"):
        if hasattr(entry, attribute):
            return getattr(entry, attribute)
    return str(entry)

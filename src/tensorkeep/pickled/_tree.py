"""A nested value with something else in the place of its tensors: lazy ones to look at, or loaded ones."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

from tensorkeep.formats.pickles import (
    ArrayRecord,
    CompositeRecord,
    DefaultDict,
    Deque,
    DtypeRecord,
    Label,
    Name,
    Namespace,
    StorageRecord,
    StorageView,
    TensorRecord,
    Unknown,
)
from tensorkeep.pickled._keys import PLAIN, joined, key_text

__all__ = ["copy_tree"]

_LEAVES = frozenset({TensorRecord, StorageRecord, StorageView, CompositeRecord, ArrayRecord, DtypeRecord, Label})


def copy_tree(value: Any, make: Callable[[Any, str], Any]) -> Any:
    """Copy a nested value, with something else in the place of each record.

    Args:
        value: What `read_pickle` gave.
        make: Takes a record of a tensor, storage, array or dtype and its dotted name, and gives what is to stand
            there. It is called once for each record, also for one that is in several places.

    Returns:
        The copy. Parts that were shared are shared; a namespace is a plain dict; unknown objects stay records.
    """
    copier = _Copier(make)
    copied = copier.copy(value, "")
    copier.finish()
    return copied


class _Copier:
    def __init__(self, make: Callable[[Any, str], Any]) -> None:
        self._make = make
        self._made: dict[int, Any] = {}
        self._begun: list[tuple[Unknown, Unknown, str]] = []

    def begin(self, node: Unknown, name: str, original: Any = None) -> Unknown:
        """Make an unknown object's copy, which is filled later: they may stand in each other without end."""
        made = self._made[id(original or node)] = Unknown(node.module, node.name)
        self._begun.append((made, node, name))
        return made

    def finish(self) -> None:
        """Fill all that was begun."""
        while self._begun:
            made, node, name = self._begun.pop()
            for slot, part in (("args", node.args), ("state", node.state), ("items", node.items)):
                object.__setattr__(made, slot, self.copy(part, name))

    def copy(self, node: Any, name: str) -> Any:
        """Return the copy of a value, which is made once."""
        kind = type(node)
        if kind in PLAIN:
            return node
        if id(node) in self._made:
            return self._made[id(node)]
        if kind is ArrayRecord and node.holds_objects:
            return self.begin(Unknown("numpy", "ndarray", (node.shape,), items=node.data), name, node)
        if kind in _LEAVES:
            made = self._made[id(node)] = self._make(node, name)
            return made
        if kind in _COPIES:
            return _COPIES[kind](self, node, name)
        return node

    def keep(self, node: Any, made: Any) -> Any:
        """Note the copy of a value, before what it holds is copied: it may hold itself."""
        self._made[id(node)] = made
        return made

    def fill(self, made: Any, node: Any, name: str) -> Any:
        """Copy the items of a dict."""
        for key, child in node.items():
            inner = joined(name, key_text(key))
            made[key if type(key) in PLAIN else self.copy(key, inner)] = self.copy(child, inner)
        return made

    def each(self, node: Any, name: str) -> list[Any]:
        """Copy the members of a sequence."""
        return [self.copy(child, joined(name, str(place))) for place, child in enumerate(node)]


def _copy_ordered(copier: _Copier, node: OrderedDict[Any, Any], name: str) -> OrderedDict[Any, Any]:
    made: OrderedDict[Any, Any] = copier.fill(copier.keep(node, OrderedDict()), node, name)
    for attribute, value in vars(node).items():
        vars(made)[attribute] = copier.copy(value, f"{name}.{attribute}" if name else attribute)
    return made


def _copy_list(copier: _Copier, node: list[Any], name: str) -> list[Any]:
    made: list[Any] = copier.keep(node, [])
    made.extend(copier.each(node, name))
    return made


def _copy_deque(copier: _Copier, node: deque[Any], name: str) -> deque[Any]:
    made: deque[Any] = copier.keep(node, deque(maxlen=node.maxlen))
    made.extend(copier.each(node, name))
    return made


def _copy_tuple(copier: _Copier, node: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    made = tuple(copier.each(node, name))
    return node if all(new is old for new, old in zip(made, node, strict=True)) else copier.keep(node, made)


_COPIES: dict[type, Callable[[_Copier, Any, str], Any]] = {
    dict: lambda copier, node, name: copier.fill(copier.keep(node, {}), node, name),
    Namespace: lambda copier, node, name: copier.fill(copier.keep(node, {}), node, name),
    Counter: lambda copier, node, name: copier.fill(copier.keep(node, Counter()), node, name),
    DefaultDict: lambda copier, node, name: copier.fill(
        copier.keep(node, defaultdict(node.default_factory)), node, name
    ),
    OrderedDict: _copy_ordered,
    list: _copy_list,
    Deque: _copy_deque,
    tuple: _copy_tuple,
    set: lambda copier, node, name: copier.keep(node, set(copier.each(node, name))),
    frozenset: lambda copier, node, name: copier.keep(node, frozenset(copier.each(node, name))),
    Unknown: lambda copier, node, name: copier.begin(node, name),
    Name: lambda copier, node, name: copier.keep(node, Unknown(node.module, node.name)),  # noqa: ARG005
}
"""Type of a container to what copies it."""

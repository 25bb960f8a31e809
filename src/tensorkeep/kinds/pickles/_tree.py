"""Copy a nested value, replacing its records of tensors by lazy or loaded tensors."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

from tensorkeep.errors import LimitError
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
from tensorkeep.kinds.pickles._keys import PLAIN, joined, key_text

_LEAVES = frozenset({TensorRecord, StorageRecord, StorageView, CompositeRecord, ArrayRecord, DtypeRecord, Label})

Copy = Callable[[Any, str], Any]
"""Takes a value and its dotted name, and returns its copy."""

Make = Callable[[Any, str, Copy], Any]
"""Takes a record, its dotted name and a function that copies the values in it; returns the replacement."""


def copy_tree(value: Any, make: Make, *, ties_leaves: bool = True) -> Any:
    """Copy a nested value, with each record replaced by what `make` returns; once for all its places, or for each."""
    try:
        return _Copier(make, ties_leaves=ties_leaves).copy_whole(value)
    except RecursionError:
        raise LimitError("tuples are nested too deeply", hint="Load it from a shallower call stack") from None


class _Copier:
    """Copies each container once. Mutable containers are created empty and filled later, which avoids recursion."""

    def __init__(self, make: Make, *, ties_leaves: bool) -> None:
        self._make = make
        self._ties_leaves = ties_leaves
        self._made: dict[int, Any] = {}
        self._begun: deque[tuple[Any, Any, str]] = deque()

    def copy_whole(self, value: Any) -> Any:
        """Return the complete copy of a value."""
        made = self.copy(value, "")
        while self._begun:
            _fill(*self._begun.popleft(), self.copy)
        return made

    def copy(self, node: Any, name: str) -> Any:
        """Return the copy of a value; a container may still be empty."""
        kind = type(node)
        if kind in PLAIN:
            return node
        if id(node) in self._made:
            return self._made[id(node)]
        begin = _BEGINNINGS.get(kind)
        if begin is not None:
            made = begin(node)
            self._begun.append((made, node, name))
        elif kind is ArrayRecord and node.holds_objects:
            made = Unknown("numpy", "ndarray", (node.shape,))
            self._begun.append((made, Unknown("numpy", "ndarray", (node.shape,), items=node.data), name))
        elif kind in _LEAVES:
            made = self._make(node, name, self.copy)
        elif kind in _AT_ONCE:
            parts = []
            # No comprehension: it would take one more frame for each level of tuples.
            for place, child in enumerate(node):
                parts.append(self.copy(child, joined(name, str(place))))
            made = kind(parts)
        else:
            made = Unknown(node.module, node.name) if kind is Name else node
        if self._ties_leaves or kind not in _LEAVES:
            self._made[id(node)] = made
        return made


_AT_ONCE = frozenset({tuple, set, frozenset})

_BEGINNINGS: dict[type, Callable[[Any], Any]] = {
    dict: lambda _: {},
    Namespace: lambda _: {},
    Counter: lambda _: Counter(),
    DefaultDict: lambda node: defaultdict(node.default_factory),
    OrderedDict: lambda _: OrderedDict(),
    list: lambda _: [],
    Deque: lambda node: deque(maxlen=node.maxlen),
    Unknown: lambda node: Unknown(node.module, node.name),
}
"""Type of each mutable container to a function that creates an empty copy."""


def _fill(made: Any, node: Any, name: str, copy: Copy) -> None:
    """Fill the copy of a container with copies of its contents."""
    if type(made) is Unknown:
        for slot, part in (("args", node.args), ("state", node.state), ("items", node.items)):
            object.__setattr__(made, slot, copy(part, name))
    elif isinstance(made, dict):
        _fill_dict(made, node.items(), name, copy)
        if type(node) is OrderedDict:
            _fill_dict(vars(made), vars(node).items(), name, copy)
    else:
        made.extend([copy(child, joined(name, str(place))) for place, child in enumerate(node)])


def _fill_dict(made: dict[Any, Any], items: Iterable[tuple[Any, Any]], name: str, copy: Copy) -> None:
    for key, child in items:
        inner = joined(name, key_text(key))
        made[key if type(key) in PLAIN else copy(key, inner)] = copy(child, inner)

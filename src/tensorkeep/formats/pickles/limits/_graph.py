"""The finished value, looked at as a whole: nothing in it may be endless for those who walk through it.

A value that is shared is one object in memory and many for a walker (`repr`, JSON, a comparison): sixty tuples, each
of which holds the one before twice, have no end. So the size is counted as a walker would meet it. Only what stands
in an `Unknown` counts once, and only through one may a value contain itself, as configurations with parents do.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import Any

from tensorkeep.errors import LimitError, PickleError
from tensorkeep.formats.pickles.values import (
    ArrayRecord,
    CompositeRecord,
    DefaultDict,
    Deque,
    Namespace,
    TensorRecord,
    Unknown,
)

DICTS: frozenset[type] = frozenset({dict, OrderedDict, DefaultDict, Counter, Namespace})
LISTS: frozenset[type] = frozenset({list, tuple, set, frozenset, Deque})
_LEAVES = frozenset({str, int, float, bool, bytes, bytearray, complex, type(None)})
_LEAF = (1, 0)
_UNDER_WAY = (0, 0)


def children_of(node: Any) -> Iterable[Any]:
    """Return what a value directly holds."""
    kind = type(node)
    if kind in LISTS:
        return node  # type: ignore[no-any-return]
    if kind in DICTS:
        attributes = vars(node).values() if kind is OrderedDict else ()
        return [*node.values(), *(key for key in node if type(key) not in _LEAVES), *attributes]
    return _parts_of_record(node)


def _parts_of_record(node: Any) -> Iterable[Any]:
    if isinstance(node, Unknown):
        return [part for part in (node.args, node.state, node.items) if part is not None]
    if type(node) is TensorRecord:
        return () if node.attributes is None else (node.attributes,)
    if type(node) is CompositeRecord:
        return (*node.parts.values(), *node.settings.values())
    return node.data if type(node) is ArrayRecord and node.holds_objects else ()


def check_graph(value: Any, *, max_nodes: int, max_depth: int) -> None:
    """Refuse a value that is endless, too large or too deep to walk through."""
    count = _Count(max_nodes, max_depth)
    count.add(value)
    while count.unknowns:
        for part in children_of(count.unknowns.pop()):
            count.add(part)


class _Count:
    """Counts what a walker meets; every container is looked at once.

    Attributes:
        unknowns: Each `Unknown` that was met, and whose own values are still to be counted.
    """

    def __init__(self, max_nodes: int, max_depth: int) -> None:
        self.unknowns: list[Unknown] = []
        self._max_nodes = max_nodes
        self._max_depth = max_depth
        self._total = 0
        self._n_under_way = 0
        self._known: dict[int, tuple[int, int]] = {}  # of containers: values in them, containers within each other

    def add(self, value: Any) -> None:
        """Count a value and all that it holds."""
        self._walk(value)
        self._total += self._known.get(id(value), _LEAF)[0]
        self._check(self._total, 0)

    def _walk(self, value: Any) -> None:
        waiting = [value]
        while waiting:
            node = waiting[-1]
            seen = self._known.get(id(node))
            if seen is not None and seen is not _UNDER_WAY:
                waiting.pop()
                continue
            children = () if type(node) in _LEAVES else children_of(node)
            if isinstance(node, Unknown):
                self._meet(node)
            elif seen is None and children:
                self._known[id(node)] = _UNDER_WAY
                self._n_under_way += 1
                self._check(0, self._n_under_way)
                waiting.extend(child for child in children if self._is_to_walk(child))
                continue
            elif seen is _UNDER_WAY:
                self._known[id(node)] = self._measure(children)
                self._n_under_way -= 1
            waiting.pop()

    def _meet(self, unknown: Unknown) -> None:
        if id(unknown) not in self._known:
            self._known[id(unknown)] = _LEAF
            self.unknowns.append(unknown)

    def _is_to_walk(self, child: Any) -> bool:
        kind = type(child)
        if kind in _LEAVES or (kind is TensorRecord and child.attributes is None):
            return False
        if (kind in LISTS or kind is dict) and not child:
            return False
        if self._known.get(id(child)) is _UNDER_WAY:
            raise PickleError("a container holds itself", found=type(child).__name__)
        return True

    def _measure(self, children: Iterable[Any]) -> tuple[int, int]:
        size, depth = 1, 0
        for child in children:
            below, deep = self._known.get(id(child), _LEAF)
            size += below
            depth = max(depth, deep + 1)
        self._check(size, depth)
        return size, depth

    def _check(self, size: int, depth: int) -> None:
        if size > self._max_nodes:
            found = "more, as shared parts count"
            raise LimitError("too many values", expected=f"at most {self._max_nodes:,}", found=found)
        if depth > self._max_depth:
            raise LimitError("containers are nested too deep", expected=f"at most {self._max_depth}", found="more")

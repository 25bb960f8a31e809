"""Checks the finished value as a whole: walking through it must end, and its arrays must be complete.

A shared value is one object in memory, but a walk (`repr`, JSON, a comparison) visits it once per reference: sixty
tuples that each hold the previous one twice take 2**60 steps. So size is counted as a walk would meet it. Values in
an `Unknown` count once, and only through an `Unknown` may a value contain itself, as configurations with parents do.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection
from typing import Any

from tensorkeep.errors import LimitError, PickleError
from tensorkeep.formats.pickles.values import (
    ArrayRecord,
    CompositeRecord,
    DefaultDict,
    Deque,
    Namespace,
    Payload,
    TensorRecord,
    Unknown,
)

DICTS: frozenset[type] = frozenset({dict, OrderedDict, DefaultDict, Counter, Namespace})
LISTS: frozenset[type] = frozenset({list, tuple, set, frozenset, Deque})
_LEAVES = frozenset({str, int, float, bool, bytes, bytearray, complex, type(None)})
_LEAF = (1, 0)
_IN_PROGRESS = (0, 0)


def children_of(node: Any) -> Collection[Any]:
    """Return the values that a value directly contains."""
    kind = type(node)
    if kind in LISTS:
        return node  # type: ignore[no-any-return]
    if kind in DICTS:
        attributes = vars(node).values() if kind is OrderedDict else ()
        return [*node.values(), *(key for key in node if type(key) not in _LEAVES), *attributes]
    return _parts_of_record(node)


def _parts_of_record(node: Any) -> Collection[Any]:
    if isinstance(node, Unknown):
        return [part for part in (node.args, node.state, node.items) if part is not None]
    if type(node) is TensorRecord:
        return () if node.attributes is None else (node.attributes,)
    if type(node) is CompositeRecord:
        return (*node.parts.values(), *node.settings.values())
    return node.data if type(node) is ArrayRecord and type(node.data) is list else ()


def check_graph(value: Any, *, max_nodes: int, max_depth: int) -> None:
    """Refuse a value that is too large, too deep or cyclic to walk through."""
    count = _Count(max_nodes, max_depth)
    count.add(value)
    while count.unknowns:
        for part in children_of(count.unknowns.pop()):
            count.add(part)


class _Count:
    """Counts the visits of a walk while looking at every container only once.

    Attributes:
        unknowns: Each `Unknown` that was met and whose contents are not counted yet.
    """

    def __init__(self, max_nodes: int, max_depth: int) -> None:
        self.unknowns: list[Unknown] = []
        self._max_nodes = max_nodes
        self._max_depth = max_depth
        self._total = 0
        self._n_in_progress = 0
        self._known: dict[int, tuple[int, int]] = {}  # id of a container to visits and depth
        self._inner: dict[int, list[Any]] = {}  # id of a container in progress to what in it is walked too

    def add(self, value: Any) -> None:
        """Count a value and everything in it."""
        self._walk(value)
        self._total += self._known.get(id(value), _LEAF)[0]
        self._check(self._total, 0)

    def _walk(self, value: Any) -> None:
        waiting = [value]
        while waiting:
            node = waiting[-1]
            seen = self._known.get(id(node))
            if seen is not None and seen is not _IN_PROGRESS:
                waiting.pop()
                continue
            children = () if type(node) in _LEAVES else children_of(node)
            if isinstance(node, Unknown):
                self._meet(node)
            elif type(node) is Payload:
                raise PickleError(
                    "a long value of bytes is not the elements of an array",
                    expected="only arrays, where a pickle is too large to be held in memory",
                    found=f"{len(node):,} bytes",
                )
            elif type(node) is ArrayRecord and not node.dtype.text:
                raise PickleError("a NumPy array is begun and never filled", expected="its shape, dtype and elements")
            elif seen is None and children:
                self._known[id(node)] = _IN_PROGRESS
                self._n_in_progress += 1
                self._check(0, self._n_in_progress)
                inner = [child for child in children if type(child) not in _LEAVES and self._is_to_walk(child)]
                self._inner[id(node)] = inner
                waiting += inner
                continue
            elif seen is _IN_PROGRESS:
                self._known[id(node)] = self._measure(len(children), self._inner.pop(id(node)))
                self._n_in_progress -= 1
            waiting.pop()

    def _meet(self, unknown: Unknown) -> None:
        if id(unknown) not in self._known:
            self._known[id(unknown)] = _LEAF
            self.unknowns.append(unknown)

    def _is_to_walk(self, child: Any) -> bool:
        kind = type(child)
        if kind is TensorRecord and child.attributes is None:
            return False
        if kind is ArrayRecord and child.dtype.text and not child.holds_objects:
            return False
        if (kind in LISTS or kind is dict) and not child:
            return False
        if self._known.get(id(child)) is _IN_PROGRESS:
            raise PickleError("a container contains itself", found=type(child).__name__)
        return True

    def _measure(self, n_children: int, inner: list[Any]) -> tuple[int, int]:
        """Return visits and depth of a container; what in it is not walked is visited once each."""
        size, depth = 1 + n_children - len(inner), 1
        for child in inner:
            below, deep = self._known.get(id(child), _LEAF)
            size += below
            depth = max(depth, deep + 1)
        self._check(size, depth)
        return size, depth

    def _check(self, size: int, depth: int) -> None:
        if size > self._max_nodes:
            found = "more, counting shared parts once per reference"
            raise LimitError("too many values", expected=f"at most {self._max_nodes:,}", found=found)
        if depth > self._max_depth:
            raise LimitError("containers are nested too deeply", expected=f"at most {self._max_depth}", found="more")

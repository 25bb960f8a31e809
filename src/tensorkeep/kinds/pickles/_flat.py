"""All tensors of a nested value by dotted name, as in a state dict."""

from __future__ import annotations

from collections import deque
from typing import Any, TypeAlias

from tensorkeep.errors import LimitError
from tensorkeep.formats.pickles import (
    DICTS,
    LISTS,
    ArrayRecord,
    CompositeRecord,
    StorageRecord,
    StorageView,
    TensorRecord,
    Unknown,
)
from tensorkeep.kinds.pickles._keys import PLAIN, key_text
from tensorkeep.limits import MAX_GRAPH_NODES, MAX_NAMES_LENGTH

MODULE_PARTS = ("_parameters", "_buffers", "_modules")
"""Keys in the state of a torch module, in the order of its state dict."""

MAX_VISITS = 100
"""How often to list a module that is in several places; without a bound, one that contains itself would never end."""

_ALONE = "tensor"
"""Name of the tensor in a file that holds nothing else."""

Leaf: TypeAlias = TensorRecord | StorageRecord | StorageView | ArrayRecord
"""Records that become lazy tensors."""

_Named: TypeAlias = tuple[str, Any]


class Leaves:
    """The leaves of a nested value.

    Attributes:
        tensors: Dotted name to tensor, storage or array.
        unknowns: Dotted name to each object that is not data; once, where it is first found.
        composites: Dotted name to kind for each sparse, quantized or nested tensor.
        empty: Dotted names of tensors without data (device meta).
        n_nodes: Number of values visited.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Leaf] = {}
        self.unknowns: dict[str, Unknown] = {}
        self.composites: dict[str, str] = {}
        self.empty: list[str] = []
        self.n_nodes = 0
        self._n_visits: dict[int, int] = {}
        self._later: deque[_Named] = deque()
        self._is_later = False
        self._length = 0
        self._n_of_name: dict[str, int] = {}

    def walk(self, value: Any) -> None:
        """Collect all leaves of a value in order; in modules, the state dict comes before everything else."""
        waiting: list[_Named] = [("", value)]
        while waiting or self._later:
            self._is_later |= not waiting
            name, node = waiting.pop() if waiting else self._later.popleft()
            self.n_nodes += 1
            if self.n_nodes > MAX_GRAPH_NODES:
                raise LimitError("too many values", expected=f"at most {MAX_GRAPH_NODES:,}", found="more")
            kind = type(node)
            is_array = kind is ArrayRecord and not node.holds_objects
            if is_array or (kind is TensorRecord and node.storage is not None and node.is_plain):
                self._note(name, node)
            else:
                waiting.extend(reversed(self._parts(name, node, kind)))

    def _parts(self, name: str, node: Any, kind: type) -> list[_Named]:
        """Record a value, and return its contents with names."""
        if kind in DICTS:
            children = [(key_text(key), child) for key, child in node.items() if type(child) not in PLAIN]
        elif kind in LISTS:
            children = [(str(place), child) for place, child in enumerate(node) if type(child) not in PLAIN]
        elif kind is CompositeRecord:
            self.composites[name] = node.kind
            return [(name, node.parts), (name, node.settings)]
        elif isinstance(node, Unknown):
            return self._parts_of_unknown(name, node)
        else:
            return self._parts_of_leaf(name, node, kind)
        self._spend(sum(len(text) for text, _ in children) + len(name) * len(children))
        return [(f"{name}.{text}", child) for text, child in children] if name else children

    def _spend(self, length: int) -> None:
        """Count characters of names before building them: one long key can be a prefix of very many names."""
        self._length += length
        if self._length > MAX_NAMES_LENGTH:
            raise LimitError(
                "the names of tensors are too long in total", expected=f"at most {MAX_NAMES_LENGTH:,} characters"
            )

    def _parts_of_leaf(self, name: str, node: Any, kind: type) -> list[_Named]:
        if kind is ArrayRecord and node.holds_objects:
            self.unknowns.setdefault(name, Unknown("numpy", "ndarray", (node.shape,), items=node.data))
            return [(name, node.data)]
        if kind in {StorageRecord, StorageView, ArrayRecord}:
            self._note(name, node)
        elif kind is TensorRecord:
            if node.storage is None:
                self.empty.append(name)
            else:
                self._note(name, node)
            if node.subclass is not None:
                self.unknowns.setdefault(name, Unknown(*node.subclass))
            return [(name, node.attributes)]
        return []

    def _note(self, name: str, leaf: Leaf) -> None:
        name = name or _ALONE
        while name in self.tensors:
            n = self._n_of_name[name] = self._n_of_name.get(name, 1) + 1
            name = f"{name}#{n}"
        self._spend(len(name))
        self.tensors[name] = leaf

    def _parts_of_unknown(self, name: str, node: Unknown) -> list[_Named]:
        n_visits = self._n_visits[id(node)] = self._n_visits.get(id(node), 0) + 1
        has_state_dict = is_module(node.state)
        if n_visits > 1:  # a module in two places of another is in its state dict twice
            is_listed = has_state_dict and not self._is_later and n_visits <= MAX_VISITS
            return [(name, part) for part in _state_dict_of(node.state)] if is_listed else []
        self.unknowns.setdefault(name, node)
        if not has_state_dict:
            return [(name, part) for part in (node.args, node.state, node.items) if part is not None]
        rest = {key: value for key, value in node.state.items() if key not in MODULE_PARTS}
        self._later.extend((name, part) for part in (node.args, rest, node.items) if part)
        return [(name, part) for part in _state_dict_of(node.state)]


def is_module(state: Any) -> bool:
    """Whether a state is that of a torch module."""
    return type(state) in DICTS and all(type(state.get(part)) in DICTS for part in MODULE_PARTS)


def _state_dict_of(state: Any) -> list[Any]:
    """Return the parts of a module that make up its state dict, in order."""
    hidden = state.get("_non_persistent_buffers_set")
    buffers = state["_buffers"]
    if type(hidden) is set:
        buffers = {key: buffer for key, buffer in buffers.items() if key not in hidden}
    return [state["_parameters"], buffers, state["_modules"]]


def leaves_of(value: Any) -> Leaves:
    """Return the leaves of a nested value by dotted name.

    Dict keys and list indices are joined with dots. A pickled module yields the names of its state dict. If two
    tensors would have the same name, the second gets `#2`.
    """
    leaves = Leaves()
    leaves.walk(value)
    return leaves

"""The tensors of a nested value by dotted names, as a state dict has them."""

from __future__ import annotations

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
from tensorkeep.limits import MAX_GRAPH_NODES, MAX_NAMES_LENGTH

__all__ = ["Leaf", "Leaves", "leaves_of"]

_MODULE_PARTS = ("_parameters", "_buffers", "_modules")
_MAX_VISITS = 100
"""How often the state dict of a module is listed that stands in several places; one that holds itself has no end."""

_ALONE = "tensor"
"""What a file is said to hold that is nothing but one tensor."""


Leaf: TypeAlias = TensorRecord | StorageRecord | StorageView | ArrayRecord
"""What becomes a lazy tensor."""


class Leaves:
    """What is at the ends of a nested value.

    Attributes:
        tensors: Dotted name to tensor, storage or array.
        unknowns: Dotted name to what is not data; each once, where it is met first.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.tensors: dict[str, Leaf] = {}
        self.unknowns: dict[str, Unknown] = {}
        self._n_visits: dict[int, int] = {}
        self._n_nodes = 0
        self._length = 0
        self._n_of_name: dict[str, int] = {}

    def walk(self, value: Any) -> None:
        """Note all that a value holds, in the order in which it holds it.

        Args:
            value: The value.

        Raises:
            LimitError: If it has too many values, or their names are too long.
        """
        waiting: list[tuple[str, Any]] = [("", value)]
        while waiting:
            name, node = waiting.pop()
            self._n_nodes += 1
            if self._n_nodes > MAX_GRAPH_NODES:
                raise LimitError("too many values", expected=f"at most {MAX_GRAPH_NODES:,}", found="more")
            kind = type(node)
            if kind is TensorRecord and node.storage is not None and node.attributes is None:
                self._note(name, node)
            else:
                waiting.extend(reversed(self._parts(name, node, kind)))

    def _parts(self, name: str, node: Any, kind: type) -> list[tuple[str, Any]]:
        """Note a value itself, and return what it holds, with names."""
        if kind in DICTS:
            prefix = f"{name}." if name else ""
            return [
                (prefix + key if type(key) is str else prefix + _text_of(key), child)
                for key, child in node.items()
                if type(child) not in _PLAIN
            ]
        if kind in LISTS:
            prefix = f"{name}." if name else ""
            return [(f"{prefix}{place}", child) for place, child in enumerate(node) if type(child) not in _PLAIN]
        if kind is CompositeRecord:
            return [(name, node.parts), (name, node.settings)]
        if isinstance(node, Unknown):
            return self._parts_of_unknown(name, node)
        return self._parts_of_leaf(name, node, kind)

    def _parts_of_leaf(self, name: str, node: Any, kind: type) -> list[tuple[str, Any]]:
        if kind is ArrayRecord and node.holds_objects:
            self.unknowns.setdefault(name, Unknown("numpy", "ndarray", (node.shape,), items=node.data))
            return [(name, node.data)]
        if kind in {StorageRecord, StorageView, ArrayRecord}:
            self._note(name, node)
        elif kind is TensorRecord:
            if node.storage is not None:
                self._note(name, node)
            return [(name, node.attributes)]
        return []

    def _note(self, name: str, leaf: Leaf) -> None:
        name = name or _ALONE
        while name in self.tensors:
            n = self._n_of_name[name] = self._n_of_name.get(name, 1) + 1
            name = f"{name}#{n}"
        self._length += len(name)
        if self._length > MAX_NAMES_LENGTH:
            raise LimitError(
                "the names of tensors are too long together", expected=f"at most {MAX_NAMES_LENGTH:,} characters"
            )
        self.tensors[name] = leaf

    def _parts_of_unknown(self, name: str, node: Unknown) -> list[tuple[str, Any]]:
        n_visits = self._n_visits[id(node)] = self._n_visits.get(id(node), 0) + 1
        if n_visits == 1:
            self.unknowns.setdefault(name, node)
        state, rest = _state_dict_of(node.state)
        parts = state if n_visits <= _MAX_VISITS else []
        if n_visits == 1:
            parts = [node.args, *parts, rest, node.items]
        return [(name, part) for part in parts if part is not None]


def _state_dict_of(state: Any) -> tuple[list[Any], Any]:
    """Return the parts of a module that make its state dict, in order, and all else that an object had."""
    if type(state) not in DICTS or any(type(state.get(part)) not in DICTS for part in _MODULE_PARTS):
        return [], state
    hidden = state.get("_non_persistent_buffers_set")
    buffers = state["_buffers"]
    if type(hidden) is set:
        buffers = {key: buffer for key, buffer in buffers.items() if key not in hidden}
    rest = {key: value for key, value in state.items() if key not in _MODULE_PARTS}
    return [state["_parameters"], buffers, state["_modules"]], rest


_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})


def _text_of(key: Any) -> str:
    if isinstance(key, Unknown):
        return key.qualified_name
    if type(key) is TensorRecord:
        return f"tensor {key.storage.key}" if key.storage else "tensor"
    return f"{key!r:.1000}"


def leaves_of(value: Any) -> Leaves:
    """Name the tensors of a nested value, and what in it is no data.

    Keys of dicts and places in lists are joined with dots. A module that was pickled whole gives the names of its
    state dict. Where two tensors would have one name, the second gets `#2`.

    Args:
        value: What `read_pickle` gave.

    Returns:
        The names.

    Raises:
        LimitError: If it has too many values, or their names are too long.
    """
    leaves = Leaves()
    leaves.walk(value)
    return leaves

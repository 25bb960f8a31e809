"""What a pickle holds beside the tensors that a file of tensors can take."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final

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
from tensorkeep.limits import MAX_GRAPH_NODES
from tensorkeep.pickled import array_of, joined, key_text

__all__ = ["Holdings"]

_SHOWN: Final = 100
_TEXT_LENGTH: Final = 80


class Holdings:
    """What walks through nested values found.

    Attributes:
        plain: Dotted name to a short text of the value, of the first 100 values that are plain data.
        n_plain: Values that are plain data, all of them.
        composites: Dotted name to what kind of tensor it is that is made of several, such as `"sparse_coo"`.
        empty: Dotted names of tensors without data (device meta).
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.plain: dict[str, str] = {}
        self.n_plain = 0
        self.composites: dict[str, str] = {}
        self.empty: list[str] = []

    def walk(self, value: Any, name: str, tensors: Container[str]) -> None:
        """Note what a nested value holds.

        What stands in objects that are not known to be data is theirs: only tensors are noted there.

        Args:
            value: What `read_pickle` gave.
            name: What it is called; empty if all names are its own.
            tensors: Dotted names of all that can be read as a tensor.

        Raises:
            LimitError: If there are too many values.
        """
        seen: set[int] = set()
        n_nodes = 0
        waiting: list[tuple[str, Any, bool]] = [(name, value, False)]
        while waiting:
            name, node, is_hidden = waiting.pop()
            n_nodes += 1
            if n_nodes > MAX_GRAPH_NODES:
                raise LimitError("too many values", expected=f"at most {MAX_GRAPH_NODES:,}", found="more")
            if isinstance(node, Unknown):
                if id(node) not in seen:
                    seen.add(id(node))
                    waiting.extend((name, part, True) for part in (node.args, node.state, node.items))
                continue
            parts = _parts(name, node)
            if parts is not None:
                waiting.extend((part_name, part, is_hidden) for part_name, part in reversed(parts))
            if isinstance(node, TensorRecord | CompositeRecord):
                self._note_tensor(name, node)
            elif parts is None and not is_hidden and not (isinstance(node, ArrayRecord) and name in tensors):
                self._note_plain(name, node)

    def _note_tensor(self, name: str, record: TensorRecord | CompositeRecord) -> None:
        if isinstance(record, CompositeRecord):
            self.composites[name] = record.kind
        elif record.storage is None:
            self.empty.append(name)

    def _note_plain(self, name: str, value: Any) -> None:
        self.n_plain += 1
        if len(self.plain) < _SHOWN:
            text = _text_of(value)
            self.plain[name] = text if len(text) <= _TEXT_LENGTH else f"{text[:_TEXT_LENGTH]}…"


def _parts(name: str, node: Any) -> list[tuple[str, Any]] | None:
    """Return what a value holds, with names, but for tensors of tensors; None for plain data."""
    kind = type(node)
    if kind in DICTS:
        return [(joined(name, key_text(key)), child) for key, child in node.items()]
    if kind in LISTS:
        return [(joined(name, str(place)), child) for place, child in enumerate(node)]
    if kind is CompositeRecord:
        return [(name, node.settings)]
    if kind is TensorRecord:
        return [] if node.attributes is None else [(name, node.attributes)]
    return [] if kind in {StorageRecord, StorageView} else None


def _text_of(value: Any) -> str:
    if isinstance(value, str | bytes | bytearray):
        return repr(value[: _TEXT_LENGTH + 1])
    if isinstance(value, ArrayRecord):
        return repr(array_of(value)) if value.is_scalar else f"array of {value.dtype}, shape {list(value.shape)}"
    return repr(value)

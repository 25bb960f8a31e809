"""What a pickle holds beside the tensors that a file of tensors can take."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
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
    shown,
)
from tensorkeep.limits import MAX_GRAPH_NODES
from tensorkeep.pickled import MODULE_PARTS, PLAIN, array_of, is_module, joined, key_text

__all__ = ["Holdings"]

_ALONE: Final = "tensor"
"""What an array is called that is all of a file."""

_SHOWN: Final = 1_000
_TEXT_LENGTH: Final = 80
_ITEMS: Final = 6
_SETTINGS_LENGTH: Final = 400
_NO_NUMBERS: Final = frozenset("USMm")
"""What NumPy's text for a dtype begins with that is one of texts or times."""


class Holdings:
    """What walks through nested values found, under the names that a state dict gives.

    Attributes:
        plain: Dotted name to a short text of the value, of the first 1,000 values that are plain data. What a tensor
            that is made of several says beside these stands here as one text.
        n_plain: Values that are plain data, all of them.
        composites: Dotted name to what kind of tensor it is that is made of several, such as `"sparse_coo"`.
        empty: Dotted names of tensors without data (device meta).
        unheld: Dotted name to NumPy's text for the dtype of each array of numbers or fields that no tensor has.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.plain: dict[str, str] = {}
        self.n_plain = 0
        self.composites: dict[str, str] = {}
        self.empty: list[str] = []
        self.unheld: dict[str, str] = {}

    def walk(self, value: Any, name: str, names: Iterable[str], source: str) -> None:
        """Note what a nested value holds.

        What stands in objects that are not known to be data is theirs: only tensors are noted there.

        Args:
            value: What `read_pickle` gave.
            name: What it is called; empty if all names are its own.
            names: Dotted names of all that can be read as a tensor.
            source: Path of its file, which sets equal names of several files apart.

        Raises:
            LimitError: If there are too many values.
        """
        names = frozenset(names)
        if not (isinstance(value, ArrayRecord) and joined(name, _ALONE) in names):
            _Walk(self, names, source).through(value, name)

    def note_plain(self, name: str, text: str, source: str) -> None:
        """Note plain data.

        Args:
            name: What it is called.
            text: What it is.
            source: Path of its file.
        """
        self.n_plain += 1
        if len(self.plain) < _SHOWN:
            self.plain[f"{source}:{name}" if name in self.plain else name] = text


class _Walk:
    """A walk through one nested value."""

    def __init__(self, holdings: Holdings, names: frozenset[str], source: str) -> None:
        self._holdings = holdings
        self._names = names
        self._source = source

    def through(self, value: Any, name: str) -> None:
        """Note all that a value of that name holds."""
        seen: set[int] = set()
        n_nodes = 0
        waiting: list[tuple[str, Any, bool]] = [(name, value, False)]
        while waiting:
            name, node, is_hidden = waiting.pop()
            n_nodes += 1
            if n_nodes > MAX_GRAPH_NODES:
                limit = f"at most {MAX_GRAPH_NODES:,}"
                raise LimitError("too many values", path=self._source, expected=limit, found="more")
            if isinstance(node, Unknown):
                if id(node) not in seen:
                    seen.add(id(node))
                    waiting.extend((name, part, True) for part in _parts_of_unknown(node))
                continue
            parts = _parts(name, node)
            is_hidden |= isinstance(node, CompositeRecord) or (isinstance(node, ArrayRecord) and node.holds_objects)
            waiting.extend((part_name, part, is_hidden) for part_name, part in reversed(parts or []))
            self._note(name, node, is_hidden=is_hidden or parts is not None)

    def _note(self, name: str, node: Any, *, is_hidden: bool) -> None:
        if isinstance(node, CompositeRecord):
            self._note_composite(name, node)
        elif isinstance(node, TensorRecord):
            if node.storage is None:
                self._holdings.empty.append(name)
        elif is_hidden or (isinstance(node, ArrayRecord) and name in self._names):
            pass
        elif isinstance(node, ArrayRecord) and _is_of_numbers(node):
            self._holdings.unheld[name] = node.dtype.text
        else:
            self._holdings.note_plain(name, _cut(_text_of(node), _TEXT_LENGTH), self._source)

    def _note_composite(self, name: str, node: CompositeRecord) -> None:
        self._holdings.composites[name] = node.kind
        settings = [
            f"{key} {shown(value)}"
            for key, value in node.settings.items()
            if not isinstance(value, TensorRecord) and type(value) not in DICTS
        ]
        if settings:
            self._holdings.note_plain(name, _cut(", ".join(settings), _SETTINGS_LENGTH), self._source)


def _parts(name: str, node: Any) -> list[tuple[str, Any]] | None:
    """Return what a value holds, with names; None for plain data, such as a list of numbers."""
    kind = type(node)
    if kind in DICTS:
        return [(joined(name, key_text(key)), child) for key, child in node.items()]
    if kind in LISTS:
        is_plain = node and all(type(child) in PLAIN for child in node)
        return None if is_plain else [(joined(name, str(place)), child) for place, child in enumerate(node)]
    if kind is CompositeRecord:
        return [(name, node.parts), (name, node.settings)]
    if kind is TensorRecord:
        return [] if node.attributes is None else [(name, node.attributes)]
    if kind is ArrayRecord and node.holds_objects:
        return [(name, node.data)]
    return [] if kind in {StorageRecord, StorageView} else None


def _parts_of_unknown(node: Unknown) -> list[Any]:
    """Return what an object holds; of a module its state dict, whose names begin as the module's does."""
    state = node.state
    if not is_module(state):
        return [node.args, state, node.items]
    rest = {key: value for key, value in state.items() if key not in MODULE_PARTS}
    return [node.args, rest, node.items, *(state[part] for part in reversed(MODULE_PARTS))]


def _is_of_numbers(array: ArrayRecord) -> bool:
    return not array.is_scalar and array.dtype.text.lstrip("<>|=")[:1] not in _NO_NUMBERS


def _text_of(value: Any) -> str:
    if isinstance(value, str | bytes | bytearray):
        return repr(value[: _TEXT_LENGTH + 1])
    if isinstance(value, ArrayRecord):
        return repr(array_of(value)) if value.is_scalar else f"array of {value.dtype.text}, shape {list(value.shape)}"
    if type(value) in LISTS:
        items = [shown(item) for item in islice(value, _ITEMS)]
        return f"[{', '.join([*items, '…'] if len(value) > _ITEMS else items)}]"
    return repr(value)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"

"""How two states differ apart from the elements of tensors: plain data, and which tensors share memory. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from itertools import zip_longest
from typing import Any, Final

import msgspec

from tensorkeep.formats.safetensors import Alias
from tensorkeep.state import FIRST_ITEM, FIRST_KEY, NAMED, Node, container_paths, described, joined, parts_of

_MAX_CHARS: Final = 60
"""Characters shown of a value; longer values are shown from near their first difference."""

_LEAD: Final = 15
"""Characters shown before the first difference."""

_MAX_PARTNERS: Final = 3


class DataDiff(msgspec.Struct, frozen=True):
    """A difference other than in a tensor's elements: a plain value, or a property of a tensor.

    Attributes:
        path: Dotted name.
        a: The value in a, on one line as Python would write it, up to 60 characters; None if only b has it.
        b: The value in b; None if only a has it.
    """

    path: str
    a: str | None
    b: str | None


def data_diffs(a: Node, b: Node, *, with_types: bool = True) -> list[DataDiff]:
    """Compare everything in two trees except tensors, also the types of containers and tensors unless told not to."""
    comparison = _Comparison(container_paths(a), container_paths(b), with_types=with_types)
    tree_a, tree_b = (_ABSENT if tree in _WITHOUT_DATA else tree for tree in (a, b))
    comparison.compare(tree_a, tree_b, "")
    return comparison.found


_ABSENT: Final = object()
_WITHOUT_DATA: Final = (None, ["dict"])
_encode: Final = msgspec.json.encode  # distinguishes 1, 1.0 and True


class _Comparison:
    """A walk through two trees at once."""

    def __init__(self, paths_a: list[str], paths_b: list[str], *, with_types: bool) -> None:
        self._paths_a = paths_a
        self._paths_b = paths_b
        self._with_types = with_types
        self.found: list[DataDiff] = []

    def compare(self, a: Any, b: Any, path: str) -> None:
        """Compare the nodes at one path."""
        if a is _ABSENT and b is _ABSENT:
            return
        if a is _ABSENT or b is _ABSENT:
            found, _ = self._only(b if a is _ABSENT else a, path, is_in_a=b is _ABSENT)
            self.found += found
        elif type(a) is dict and type(b) is dict:
            self._note_types(path, _tensor_text(a), _tensor_text(b))
        elif type(a) is not list or type(b) is not list:
            self._compare_values(a, b, path)
        elif a[0] in FIRST_KEY and b[0] in FIRST_KEY:
            self._note_types(path, _kind(a), _kind(b))
            self._compare_attributes(a, b, path)
            self._compare_keyed(a, b, path)
        elif a[0] in FIRST_ITEM and b[0] in FIRST_ITEM and not (parts_of(a) is None and parts_of(b) is None):
            self._note_types(path, _kind(a), _kind(b))
            items = zip_longest(_items(a), _items(b), fillvalue=_ABSENT)
            for place, (item_a, item_b) in enumerate(items):
                self.compare(item_a, item_b, joined(path, str(place)))
        elif a[:3] == b[:3] and a[0] == "composed" and (_has_parts(a) or _has_parts(b)):
            self.compare(a[3], b[3], path)
            self.compare(a[4], b[4], path)
        elif a[0] == b[0] == "same":
            self._note(path, f"same as {self._paths_a[a[1]]}", f"same as {self._paths_b[b[1]]}")
        else:
            self._compare_values(a, b, path)

    def _compare_values(self, a: Node, b: Node, path: str) -> None:
        if _encode(a) != _encode(b):
            self._note(path, *_texts_apart(described(a, self._paths_a), described(b, self._paths_b), a, b))

    def _compare_keyed(self, a: list[Any], b: list[Any], path: str) -> None:
        entries_a, entries_b = _entries(a), _entries(b)
        for key, (label, child) in entries_a.items():
            self.compare(child, entries_b[key][1] if key in entries_b else _ABSENT, joined(path, label))
        for key, (label, child) in entries_b.items():
            if key not in entries_a:
                self.compare(_ABSENT, child, joined(path, label))

    def _compare_attributes(self, a: list[Any], b: list[Any], path: str) -> None:
        """Compare attributes of OrderedDicts, such as `_metadata` of a torch state dict."""
        if self._with_types and a[0] == b[0] == "OrderedDict":
            self.compare(a[1] or ["dict"], b[1] or ["dict"], path)

    def _only(self, node: Node, path: str, *, is_in_a: bool) -> tuple[list[DataDiff], bool]:
        """Report what only one side has, in one piece if it holds no tensors; tensors are compared by name.

        Also returns whether the node holds tensors.
        """
        if type(node) is dict:
            return [], True
        parts = parts_of(node)
        if parts is None:
            is_of_tensors = type(node) is list and node[0] == "composed" and _has_parts(node)
            return self._in_one_piece(node, path, is_in_a=is_in_a), is_of_tensors
        found: list[DataDiff] = []
        has_any_tensor = False
        for label, child in parts:
            inner, has_tensor = self._only(child, joined(path, label), is_in_a=is_in_a)
            found += inner
            has_any_tensor |= has_tensor
        if has_any_tensor or not path:
            return found, has_any_tensor
        return self._in_one_piece(node, path, is_in_a=is_in_a), False

    def _in_one_piece(self, node: Node, path: str, *, is_in_a: bool) -> list[DataDiff]:
        text = described(node, self._paths_a if is_in_a else self._paths_b, max_chars=_MAX_CHARS)
        return [DataDiff(path, text, None) if is_in_a else DataDiff(path, None, text)]

    def _note_types(self, path: str, a: str, b: str) -> None:
        if self._with_types:
            self._note(path, a, b)

    def _note(self, path: str, a: str, b: str) -> None:
        if a != b:
            self.found.append(DataDiff(path, a, b))


def _has_parts(composed: list[list[Any]]) -> bool:
    return len(composed[4]) > 1


def _items(node: list[Any]) -> list[Any]:
    return node[FIRST_ITEM[node[0]] :]


def _entries(node: list[Any]) -> dict[bytes, tuple[str, Node]]:
    """Map the encoded text of each key to its label and its value."""
    keys = node[FIRST_KEY[node[0]] :: 2]
    parts = parts_of(node) or []
    return {_encode(key): part for key, part in zip(keys, parts, strict=True)}


def _kind(node: list[Any]) -> str:
    if node[0] in NAMED:
        return f"{node[0]} {described(node[1])}"
    if node[0] == "deque":
        return "deque" if node[1] is None else f"deque of up to {described(node[1])}"
    return str(node[0])


def _tensor_text(members: Mapping[str, Any]) -> str:
    """Describe a tensor apart from its elements; its array library and memory order do not count as differences."""
    kind = members.get("class", "tensor")
    return f"{kind} that requires grad" if members.get("grad") else str(kind)


def _texts_apart(a_text: str, b_text: str, a: Node, b: Node) -> tuple[str, str]:
    """Describe two different values, long ones from near their first difference."""
    if a_text == b_text:  # such as two kinds of NaN
        a_text, b_text = _encode(a).decode(), _encode(b).decode()
    if max(len(a_text), len(b_text)) <= _MAX_CHARS:
        return a_text, b_text
    pairs = zip(a_text, b_text, strict=False)
    n_shorter = min(len(a_text), len(b_text))
    n_alike = next((place for place, (char_a, char_b) in enumerate(pairs) if char_a != char_b), n_shorter)
    start = max(n_alike - _LEAD, 0)
    return _cut(a_text, start), _cut(b_text, start)


def _cut(text: str, start: int) -> str:
    stop = start + _MAX_CHARS - 2
    return ("…" if start else "") + text[start:stop] + ("…" if stop < len(text) else "")


def tie_diffs(a: Mapping[str, Alias], b: Mapping[str, Alias], names: Collection[str]) -> list[DataDiff]:
    """Compare which tensors share memory."""
    groups_a, groups_b = _groups(a, names), _groups(b, names)
    numbers_a, numbers_b = _numbers([groups_a, groups_b])

    def is_different(name: str) -> bool:
        alias_a, alias_b = a.get(name), b.get(name)
        if alias_a is not None and alias_b is not None and alias_a.of == alias_b.of:
            return _is_elsewhere(alias_a, alias_b)
        return (alias_a or alias_b) is not None and numbers_a.get(name) != numbers_b.get(name)

    return [
        DataDiff(name, _tie_text(name, a, groups_a), _tie_text(name, b, groups_b))
        for name in names
        if is_different(name)
    ]


def _groups(aliases: Mapping[str, Alias], names: Collection[str]) -> dict[str, frozenset[str]]:
    """Map each compared name to the compared names that share its memory, itself included."""
    by_owner: dict[str, set[str]] = {}
    for name, alias in aliases.items():
        by_owner.setdefault(alias.of, {alias.of}).add(name)
    compared = frozenset(names)
    groups = (frozenset(group & compared) for group in by_owner.values())
    return {name: group for group in groups if len(group) > 1 for name in group}


def _numbers(sides: list[dict[str, frozenset[str]]]) -> list[dict[str, int]]:
    """Give equal groups equal numbers, so that a large group is compared once, not once per member."""
    by_group: dict[frozenset[str], int] = {}
    numbers = []
    for groups in sides:
        by_id = {id(group): group for group in groups.values()}
        number_of = {key: by_group.setdefault(group, len(by_group)) for key, group in by_id.items()}
        numbers.append({name: number_of[id(group)] for name, group in groups.items()})
    return numbers


def _tie_text(name: str, aliases: Mapping[str, Alias], groups: Mapping[str, frozenset[str]]) -> str:
    alias = aliases.get(name)
    if alias is not None and alias.is_whole:
        return f"= {alias.of}"
    if alias is not None:
        return f"view of {alias.of} from byte {alias.offset:,}"
    others = heapq.nsmallest(_MAX_PARTNERS, groups.get(name, frozenset()) - {name})
    return f"shares memory with {', '.join(others)}" if others else "memory of its own"


def _is_elsewhere(a: Alias, b: Alias) -> bool:
    """Whether two views of the same tensor cover it differently."""
    return (a.offset, a.strides, a.is_conj, a.is_neg) != (b.offset, b.strides, b.is_conj, b.is_neg)

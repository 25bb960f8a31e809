"""The structure of nodes: the parts of an array, the members of a tensor, the limits of a tree.

A path is the keys and indices that lead to a node, joined by dots: the name of a tensor whose node has no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tensorkeep.errors import FormatError, LimitError
from tensorkeep.limits import MAX_NAMES_LENGTH, MAX_STATE_DEPTH
from tensorkeep.state._keys import joined, key_text, words_for
from tensorkeep.state._values import Node, NodeMembers

FIRST_ITEM: Final = {"list": 1, "tuple": 1, "deque": 2}
"""Tag to the index of the first item; items are the rest of the array."""

FIRST_KEY: Final = {
    "dict": 1,
    "Counter": 1,
    "defaultdict": 1,
    "Namespace": 1,
    "SimpleNamespace": 1,
    "OrderedDict": 2,
    "dataclass": 2,
    "namedtuple": 2,
}
"""Tag to the index of the first key; keys and values alternate in the rest of the array."""

NAMED: Final = frozenset({"dataclass", "namedtuple"})
"""Tags of objects that need all their fields."""

NUMBERED: Final = frozenset({*FIRST_ITEM, *FIRST_KEY, "set", "frozenset", "enum", "bytearray", "composed"})
"""Tags of containers with a number, for references to them: from 0, in the order in which they begin.

Containers in keys, sets, slices and values of enums have none.
"""

_SAME_PATH: Final = {"OrderedDict": (1,), "composed": (3, 4), "bytes": (1,), "bytearray": (1,)}
"""Tag to the indices of nodes that have the path of the array itself."""

_MEMBER_TYPES: Final = {"name": str, "library": str, "order": list, "class": str, "grad": bool, "weak": bool}

_HOLDERS: Final = frozenset({list, dict})
"""Types of nodes that can be or contain a tensor."""


def children(node: list[Any], path: str) -> Iterator[tuple[int, Node, str]]:
    """Yield index, node and path of the nodes in an array that can be or contain tensors."""
    tag = node[0] if node else None
    if type(tag) is not str:
        raise FormatError(f"{words_for(path)} has an array without a tag", found=repr(tag))
    for place in _SAME_PATH.get(tag, ()):
        if place < len(node) and type(node[place]) in _HOLDERS:
            yield place, node[place], path
    if tag in FIRST_ITEM:
        first = FIRST_ITEM[tag]
        for place in range(first, len(node)):
            if type(node[place]) in _HOLDERS:
                yield place, node[place], joined(path, str(place - first))
    elif tag in FIRST_KEY:
        yield from _entries(node, FIRST_KEY[tag], path)


def _entries(node: list[Any], first: int, path: str) -> Iterator[tuple[int, Node, str]]:
    if len(node) < first or (len(node) - first) % 2:
        raise FormatError(
            f"a {node[0]} has a key without a value at {words_for(path)} of the tree", found=f"{len(node)} parts"
        )
    for place in range(first + 1, len(node), 2):
        if type(node[place]) in _HOLDERS:
            yield place, node[place], joined(path, key_text(node[place - 1]))


def members_of(node: NodeMembers, path: str) -> tuple[str, NodeMembers]:
    """Return a tensor's name, and the other members of its node."""
    if not node:
        return path, node
    for member, value in node.items():
        if type(value) is not _MEMBER_TYPES.get(member):
            raise FormatError(
                f"the tensor at {words_for(path)} has an unknown member", found=f"{member!r}: {value!r}"
            )
    if "name" not in node:
        return path, node
    return node["name"], {member: value for member, value in node.items() if member != "name"}


def check_depth(depth: int, path: str) -> None:
    """Refuse containers that are nested too deep."""
    if depth > MAX_STATE_DEPTH:
        raise LimitError(f"{words_for(path)} is nested too deep", expected=f"at most {MAX_STATE_DEPTH} levels")


def check_paths(length: int) -> None:
    """Refuse a tree whose paths take far more memory than its text."""
    if length > MAX_NAMES_LENGTH:
        raise LimitError(
            "paths in the tree are too long in total", expected=f"at most {MAX_NAMES_LENGTH:,} characters"
        )

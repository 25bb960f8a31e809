"""How nodes are built: where the parts of an array stand, what says of a tensor what it is, how large a tree may be.

A path is all keys and places on the way to a node, joined by dots: the name of a tensor whose node has no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tensorkeep.errors import FormatError, LimitError
from tensorkeep.limits import MAX_NAMES_LENGTH, MAX_STATE_DEPTH
from tensorkeep.state._keys import joined, key_text, words_for
from tensorkeep.state._values import Node, NodeMembers

FIRST_ITEM: Final = {"list": 1, "tuple": 1, "deque": 2}
"""Tag to the place of the first item, which are the rest of the array."""

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
"""Tag to the place of the first key; keys and values are the rest of the array, in turn."""

NAMED: Final = frozenset({"dataclass", "namedtuple"})
"""Tags of objects that have all their fields, or are none."""

NUMBERED: Final = frozenset({*FIRST_ITEM, *FIRST_KEY, "set", "frozenset", "enum", "bytearray", "composed"})
"""Tags of arrays that have a number, by which others refer to them: from 0 in the order in which they begin.

Arrays in keys, sets, slices and values of enums have none.
"""

_SAME_PATH: Final = {"OrderedDict": (1,), "composed": (3, 4), "bytes": (1,), "bytearray": (1,)}
"""Tag to the places of nodes that have the path of the array itself."""

_MEMBER_TYPES: Final = {"name": str, "library": str, "order": list, "class": str, "grad": bool}

_HOLDERS: Final = frozenset({list, dict})
"""Types of nodes that may hold a tensor, or be one."""


def children(node: list[Any], path: str) -> Iterator[tuple[int, Node, str]]:
    """Give the nodes in an array that may hold tensors, in their order."""
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
    """Return the name of a tensor and what its node says besides."""
    if not node:
        return path, node
    for member, value in node.items():
        if type(value) is not _MEMBER_TYPES.get(member):
            raise FormatError(
                f"the tensor at {words_for(path)} has a member that means nothing", found=f"{member!r}: {value!r}"
            )
    if "name" not in node:
        return path, node
    return node["name"], {member: value for member, value in node.items() if member != "name"}


def check_depth(depth: int, path: str) -> None:
    """Refuse containers in containers without end."""
    if depth > MAX_STATE_DEPTH:
        raise LimitError(
            f"{words_for(path)} lies too deep", expected=f"at most {MAX_STATE_DEPTH} containers in each other"
        )


def check_paths(length: int) -> None:
    """Refuse a tree whose paths would take far more memory than its text."""
    if length > MAX_NAMES_LENGTH:
        raise LimitError(
            "paths in the tree are too long together", expected=f"at most {MAX_NAMES_LENGTH:,} characters"
        )

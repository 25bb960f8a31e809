"""Walks through nodes: which tensors a tree has, under which names, and the same tree with other names.

A path is all keys and places on the way to a node, joined by dots: the name of a tensor whose node has no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tensorkeep.errors import FormatError, LimitError
from tensorkeep.limits import MAX_NAMES_LENGTH, MAX_STATE_DEPTH
from tensorkeep.state._keys import joined, key_text, words_for
from tensorkeep.state._values import Node, NodeMembers

__all__ = [
    "FIRST_ITEM",
    "FIRST_KEY",
    "NAMED",
    "NUMBERED",
    "children",
    "members_of",
    "part_libraries",
    "renamed",
    "tensor_names",
]

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


def tensor_names(tree: Node) -> Iterator[tuple[str, str, NodeMembers]]:
    """Give the tensors of a tree, in its order.

    Args:
        tree: The nodes.

    Yields:
        Name, path, and what the node says besides the name.

    Raises:
        FormatError: If these are no nodes.
        LimitError: If they are nested too deep, or all names are too long together.
    """
    length = 0
    for node, path in _tensors(tree):
        name, members = members_of(node, path)
        length += len(name) + len(path)
        if length > 2 * MAX_NAMES_LENGTH:
            raise LimitError("names of tensors are too long together", expected=f"{MAX_NAMES_LENGTH:,} characters")
        yield name, path, members


def part_libraries(tree: Node) -> dict[str, str]:
    """Return which tensors are parts of a value, and the array library that makes it, which nobody can choose.

    Args:
        tree: The nodes.

    Returns:
        Name to library, `"numpy"` for the content of a long bytes object.

    Raises:
        FormatError: If these are no nodes.
        LimitError: If they are nested too deep.
    """
    libraries: dict[str, str] = {}
    waiting: list[tuple[Node, str, int, str | None]] = [(tree, "", 0, None)]
    while waiting:
        node, path, depth, library = waiting.pop()
        if type(node) is dict and library is not None:
            libraries[members_of(node, path)[0]] = library
        elif type(node) is list:
            _check_depth(depth, path)
            for place, child, child_path in children(node, path):
                of_child = library if type(child) is dict else None
                waiting.append((child, child_path, depth + 1, _maker(node, place) or of_child))
    return libraries


def _maker(node: list[Any], place: int) -> str | None:
    """Return the library that makes a value of the parts at a place of its array."""
    if node[0] in {"bytes", "bytearray"}:
        return "numpy"
    is_parts = node[0] == "composed" and place == _PARTS and type(node[1]) is str
    return node[1] if is_parts else None


def renamed(tree: Node, names: Mapping[str, str]) -> Node:
    """Return a tree whose tensors are called otherwise.

    A tensor that bears the name of its place gets the key that makes its new name, where it stays in its dict; all
    others stay where they are.

    Args:
        tree: The nodes.
        names: Old name to new name; those that are not in it stay.

    Returns:
        New nodes.

    Raises:
        FormatError: If these are no nodes.
        LimitError: If they are nested too deep.
    """
    return _renamed(tree, names, "", 0)


def _renamed(node: Node, names: Mapping[str, str], path: str, depth: int) -> Node:
    if type(node) is dict:
        name, members = members_of(node, path)
        name = names.get(name, name)
        return members if name == path else {"name": name, **members}
    if type(node) is not list:
        return node
    _check_depth(depth, path)
    copy = list(node)
    keys = _new_keys(node, names, path)
    for place, child, child_path in children(node, path):
        if place - 1 in keys:
            copy[place - 1] = keys[place - 1]
        else:
            copy[place] = _renamed(child, names, child_path, depth + 1)
    return copy


def _new_keys(node: list[Any], names: Mapping[str, str], path: str) -> dict[int, str]:
    """Return place to new key, by which tensors in a dict bear the names of their places; none where keys clash."""
    first = FIRST_KEY[node[0]] if node and node[0] in _WITH_FREE_KEYS else len(node)
    keys: dict[int, str] = {}
    for place in range(first, len(node) - 1, 2):
        key, child = node[place], node[place + 1]
        if type(key) is str and type(child) is dict and "name" not in child:
            name = names.get(joined(path, key), "")
            new_key = name.removeprefix(f"{path}.") if path else name
            if new_key and joined(path, new_key) == name:
                keys[place] = new_key
    texts = [keys.get(place, node[place]) for place in range(first, len(node), 2) if type(node[place]) is str]
    return keys if len(set(texts)) == len(texts) else {}


_WITH_FREE_KEYS: Final = ("dict", "OrderedDict", "defaultdict")
_PARTS: Final = 4


def children(node: list[Any], path: str) -> Iterator[tuple[int, Node, str]]:
    """Give the nodes in an array that may hold tensors, in their order.

    Args:
        node: Of a tag and its parts.
        path: Of the array.

    Yields:
        Place in the array, node and its path; only arrays and objects.

    Raises:
        FormatError: If the array has no tag, or a key without a value.
    """
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
    """Return the name of a tensor and what its node says besides.

    Args:
        node: The object.
        path: Where it stands.

    Returns:
        Name and the other members.

    Raises:
        FormatError: If it has a member that no tensor has.
    """
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


_HOLDERS: Final = frozenset({list, dict})


def _tensors(tree: Node) -> Iterator[tuple[NodeMembers, str]]:
    waiting: list[Iterator[tuple[int, Node, str]]] = [iter([(0, tree, "")])]
    while waiting:
        for _, child, child_path in waiting[-1]:
            if type(child) is dict:
                yield child, child_path
            elif type(child) is list:
                _check_depth(len(waiting) - 1, child_path)
                waiting.append(children(child, child_path))
                break
        else:
            waiting.pop()


def _check_depth(depth: int, path: str) -> None:
    if depth > MAX_STATE_DEPTH:
        raise LimitError(
            f"{words_for(path)} lies too deep", expected=f"at most {MAX_STATE_DEPTH} containers in each other"
        )

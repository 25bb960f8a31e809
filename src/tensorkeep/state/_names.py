"""The tensors of a tree by name, and the same tree with other names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tensorkeep.errors import LimitError
from tensorkeep.limits import MAX_NAMES_LENGTH
from tensorkeep.state._keys import joined
from tensorkeep.state._nodes import FIRST_KEY, check_depth, children, members_of
from tensorkeep.state._values import Node, NodeMembers

_WITH_FREE_KEYS: Final = ("dict", "OrderedDict", "defaultdict")
"""Tags of arrays whose keys may be any text."""

_PARTS: Final = 4
"""Index of the parts in a composed value's node."""


def tensor_names(tree: Node) -> Iterator[tuple[str, str, NodeMembers]]:
    """Yield the tensors of a tree, in its order: name, path and members."""
    length = 0
    for node, path in _tensors(tree):
        name, members = members_of(node, path)
        length += len(name) + len(path)
        if length > 2 * MAX_NAMES_LENGTH:
            raise LimitError("names of tensors are too long in total", expected=f"{MAX_NAMES_LENGTH:,} characters")
        yield name, path, members


def part_libraries(tree: Node) -> dict[str, str]:
    """Return the tensors that are parts of an object, each with the array library that must load it."""
    libraries: dict[str, str] = {}
    waiting: list[tuple[Node, str, int, str | None]] = [(tree, "", 0, None)]
    while waiting:
        node, path, depth, library = waiting.pop()
        if type(node) is dict and library is not None:
            libraries[members_of(node, path)[0]] = library
        elif type(node) is list:
            check_depth(depth, path)
            for place, child, child_path in children(node, path):
                of_child = library if type(child) is dict else None
                waiting.append((child, child_path, depth + 1, _maker(node, place) or of_child))
    return libraries


def _maker(node: list[Any], place: int) -> str | None:
    """Return the library that needs the tensors at a place of a node; None if any will do."""
    if node[0] in {"bytes", "bytearray"}:
        return "numpy"
    is_parts = node[0] == "composed" and place == _PARTS and type(node[1]) is str
    return node[1] if is_parts else None


def renamed(tree: Node, names: Mapping[str, str]) -> Node:
    """Return a tree whose tensors have other names.

    If a tensor's name was its place in the tree, its key changes with it, as long as it stays in the same dict. All
    other tensors stay where they are.
    """
    return _renamed(tree, names, "", 0)


def _renamed(node: Node, names: Mapping[str, str], path: str, depth: int, *, has_free_keys: bool = True) -> Node:
    if type(node) is dict:
        name, members = members_of(node, path)
        name = names.get(name, name)
        return members if name == path else {"name": name, **members}
    if type(node) is not list:
        return node
    check_depth(depth, path)
    copy = list(node)
    keys = _new_keys(node, names, path) if has_free_keys else {}
    for place, child, child_path in children(node, path):
        if place - 1 in keys:
            copy[place - 1] = keys[place - 1]
        else:
            copy[place] = _renamed(child, names, child_path, depth + 1, has_free_keys=node[0] != "composed")
    return copy


def _new_keys(node: list[Any], names: Mapping[str, str], path: str) -> dict[int, str]:
    """Return index to new key, for keys that change with their tensors' names; empty if two would be equal."""
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


def _tensors(tree: Node) -> Iterator[tuple[NodeMembers, str]]:
    waiting: list[Iterator[tuple[int, Node, str]]] = [iter([(0, tree, "")])]
    while waiting:
        for _, child, child_path in waiting[-1]:
            if type(child) is dict:
                yield child, child_path
            elif type(child) is list:
                check_depth(len(waiting) - 1, child_path)
                waiting.append(children(child, child_path))
                break
        else:
            waiting.pop()

"""The values of a tree that are not tensors, by dotted name. Pure.

References are not followed, so a walk takes no longer than the text of the tree is long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from tensorkeep.errors import FormatError
from tensorkeep.state._decode import decode_tree
from tensorkeep.state._keys import joined, key_text
from tensorkeep.state._nodes import FIRST_ITEM, FIRST_KEY, NUMBERED, check_paths, children
from tensorkeep.state._values import Node

_HOLDERS: Final = frozenset({*FIRST_KEY, *FIRST_ITEM, "same", "composed", "bytes", "bytearray"})
"""Tags of nodes that get a line of their own, or contain one that does."""


def read_tree(text: bytes, has_tensor: Callable[[str], bool]) -> Node:
    """Read and check a tree, without creating its values."""

    def tensor(name: str, _: object = None) -> None:
        if not has_tensor(name):
            raise FormatError(f"the tree has a tensor `{name}`, which the file lacks", tensor=name)

    def content(name: str) -> bytes:
        tensor(name)
        return b""

    try:
        tree: Node = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise FormatError("cannot read the tree of the state", found=str(error)) from None
    decode_tree(tree, tensor=tensor, compose=lambda _: None, find_class=lambda _: None, content=content)
    return tree


def parts_of(node: Node) -> list[tuple[str, Node]] | None:
    """Return the parts of a container that get a dotted name each; None if it is described as one value."""
    if type(node) is not list:
        return None
    tag = node[0]
    if tag in FIRST_KEY:
        first = FIRST_KEY[tag]
        pairs = zip(node[first::2], node[first + 1 :: 2], strict=True)
        return [(key_text(key), child) for key, child in pairs] or None
    if tag in FIRST_ITEM:
        items = node[FIRST_ITEM[tag] :]
        if all(_is_value(item) or _is_sequence_of_values(item) for item in items):
            return None
        return [(str(place), item) for place, item in enumerate(items)]
    return None


def _is_value(node: Node) -> bool:
    return type(node) is not dict and (type(node) is not list or node[0] not in _HOLDERS)


def _is_sequence_of_values(node: Any) -> bool:
    return type(node) is list and node[0] in FIRST_ITEM and all(map(_is_value, node[FIRST_ITEM[node[0]] :]))


def plain_values(tree: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    """Yield all values of a tree that are not tensors, in its order."""
    length = 0
    waiting = [(path, tree)]
    while waiting:
        path, node = waiting.pop()
        length += len(path)
        check_paths(length)
        parts = parts_of(node)
        if parts is not None:
            waiting.extend((joined(path, label), child) for label, child in reversed(parts))
        elif type(node) is not dict:
            yield path, node


def path_of_most(tree: Node) -> str:
    """Return the dotted name of the smallest part that takes more than half of the tree's text."""
    path, node, half = "", tree, len(msgspec.json.encode(tree)) / 2
    while True:
        parts = parts_of(node) or []
        found = next((part for part in parts if len(msgspec.json.encode(part[1])) > half), None)
        if found is None:
            return path
        path, node = joined(path, found[0]), found[1]


def container_paths(tree: Node) -> list[str]:
    """Return the dotted names of numbered containers, in order: `["same", n]` refers to number n."""
    paths: list[str] = []
    length = 0
    waiting: list[tuple[Node, str]] = [(tree, "")]
    while waiting:
        node, path = waiting.pop()
        if type(node) is not list:
            continue
        if node[0] in NUMBERED:
            paths.append(path)
            length += len(path)
            check_paths(length)
        waiting.extend((child, child_path) for _, child, child_path in reversed(list(children(node, path))))
    return paths

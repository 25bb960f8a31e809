"""A part of a tree: the selected nodes, as a new tree.

References are followed, so an object in two places can be selected in part in one of them. If it is selected whole in
both, it stays one object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tensorkeep.errors import FormatError, LimitError
from tensorkeep.limits import MIN_GRAPH_NODES
from tensorkeep.state._keys import joined, key_text
from tensorkeep.state._nodes import (
    FIRST_ITEM,
    FIRST_KEY,
    NAMED,
    NUMBERED,
    check_depth,
    check_paths,
    children,
    members_of,
)
from tensorkeep.state._values import Node

_NOTHING: Final = object()


def selected(tree: Node, wanted: Callable[[str], bool]) -> Node:
    """Return the nodes of a part of a tree."""
    part: Node = _Selection(tree, wanted).part(tree, "", "")
    if part is not _NOTHING:
        return part
    return ["dict"] if type(tree) is list and tree[0] in FIRST_KEY else None


class _Selection:
    """One selection; keeps the numbers of containers in the old and in the new tree."""

    def __init__(self, tree: Node, wanted: Callable[[str], bool]) -> None:
        self._wanted = wanted
        self._origins: list[tuple[list[Any], str] | None] = []
        self._numbers: dict[int, int] = {}
        self._new_numbers: dict[int, int] = {}
        self._n_new = 0
        self._n_followed = 0
        self._paths_length = 0
        self._number(tree, "", 0)

    def part(self, node: Node, path: str, origin: str) -> Any:
        """Return the selected part of a node; `origin` is the path that the names of its tensors come from."""
        self._n_followed += path != origin
        if self._n_followed > MIN_GRAPH_NODES:
            raise LimitError(
                "the selected parts refer to other parts too often",
                expected=f"at most {MIN_GRAPH_NODES:,} values in them",
                hint="Load everything, or name the parts without *",
            )
        if self._wanted(path):
            return self._whole(node, origin)
        if type(node) is not list:
            return _NOTHING
        if node[0] == "same":
            target, target_origin = self._target(node)
            return self.part(target, path, target_origin)
        first = FIRST_ITEM.get(node[0], FIRST_KEY.get(node[0]))
        if first is None:
            return _NOTHING
        self._n_new += 1
        chosen = (self._items if node[0] in FIRST_ITEM else self._entries)(node, first, path, origin)
        self._n_new -= chosen is _NOTHING
        return chosen

    def _items(self, node: list[Any], first: int, path: str, origin: str) -> Any:
        parts = [
            self.part(child, joined(path, str(place)), joined(origin, str(place)))
            for place, child in enumerate(node[first:])
        ]
        if all(part is _NOTHING for part in parts):
            return _NOTHING
        return [*node[:first], *(None if part is _NOTHING else part for part in parts)]

    def _entries(self, node: list[Any], first: int, path: str, origin: str) -> Any:
        chosen = node[:first]
        is_empty = True
        if node[0] == "OrderedDict":
            attributes = self.part(node[1], path, origin)
            is_empty = attributes is _NOTHING
            chosen[1] = None if is_empty else attributes
        for key, child in zip(node[first::2], node[first + 1 :: 2], strict=True):
            text = key_text(key)
            part = self.part(child, joined(path, text), joined(origin, text))
            is_empty &= part is _NOTHING
            if part is not _NOTHING:
                chosen += key, part
            elif node[0] in NAMED:
                chosen += key, None
        return _NOTHING if is_empty else chosen

    def _whole(self, node: Node, origin: str) -> Node:
        if type(node) is dict:
            name, members = members_of(node, origin)
            return {"name": name, **members}
        if type(node) is not list:
            return node
        if node[0] == "same":
            node, origin = self._target(node)
        number = self._numbers.get(id(node))
        if number in self._new_numbers:
            return ["same", self._new_numbers[number]]
        if number is not None:
            self._new_numbers[number] = self._n_new
            self._n_new += 1
        copy = list(node)
        for place, child, child_origin in children(node, origin):
            copy[place] = self._whole(child, child_origin)
        return copy

    def _target(self, node: list[Any]) -> tuple[list[Any], str]:
        number = node[1] if len(node) == 2 else None
        target = self._origins[number] if type(number) is int and 0 <= number < len(self._origins) else None
        if target is None:
            raise FormatError("no complete container has this number", found=repr(number)[:100])
        return target

    def _number(self, node: Node, path: str, depth: int) -> None:
        """Number the containers of the old tree as a decoder does, and check the references between them."""
        if type(node) is not list:
            return
        check_depth(depth, path)
        number = len(self._origins)
        is_numbered = node[:1] != [] and type(node[0]) is str and node[0] in NUMBERED
        if is_numbered:
            self._numbers[id(node)] = number
            self._origins.append(None)
            self._paths_length += len(path)
        check_paths(self._paths_length)
        if node[:1] == ["same"]:
            self._target(node)
        for _, child, child_path in children(node, path):
            self._number(child, child_path, depth + 1)
        if is_numbered:
            self._origins[number] = node, path

"""The tree of a nested value, as files store it: its tensors have the names of a state dict."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from tensorkeep.arrays import codec_for, plain_library
from tensorkeep.collector import PausedCollector
from tensorkeep.formats.safetensors import State
from tensorkeep.kinds import NestedData, TensorLeaf
from tensorkeep.kinds.pickles import taken_apart
from tensorkeep.state import encode_tree, renamed, tensor_names


class NamedState(msgspec.Struct, frozen=True):
    """A tree whose tensors have names, and what it needs besides the tensors of its source.

    Attributes:
        state: The tree.
        names: Names of all tensors in it.
        arrays: Name to NumPy array, for arrays that are not tensors in the source, such as arrays of text.
        repeats: Extra name to the first name of the same tensor, if it is in more places than it has names.
    """

    state: State
    names: frozenset[str]
    arrays: dict[str, Any]
    repeats: dict[str, str]


def named_state(data: NestedData, names: Collection[str]) -> NamedState:
    """Encode a nested value as a tree; `names` are the names that tensors of the source have."""
    with PausedCollector():
        leaves = _Leaves()
        encoded = encode_tree(data.value, leaf=leaves.leaf, compose=taken_apart)
        paths = {token: path for token, path, _ in tensor_names(encoded.tree)}
        naming = _Naming(names)
        new_names: dict[str, str] = {}
        for number, (own, value) in enumerate(encoded.tensors.items()):
            token = str(number)
            new_names[token] = naming.name_of(value, own, paths[token])
        tree = renamed(encoded.tree, new_names)
        state = State(library=leaves.library, tree=msgspec.Raw(msgspec.json.encode(tree)))
    return NamedState(state, frozenset(new_names.values()), naming.arrays, naming.repeats)


class _Leaves:
    """Numbers the tensors: the number serves as a name until all names are known."""

    def __init__(self) -> None:
        self.library: str | None = None
        self._n = 0

    def leaf(self, value: Any) -> dict[str, Any] | None:
        """Return the tree's record of a tensor; None if the value is not a tensor."""
        if type(value) is TensorLeaf:
            library, marks = value.library, value.marks
        else:
            found = plain_library(value)
            if found is None:
                return None
            library, marks = found, codec_for(found).attributes_of(value)
        if self.library is None:
            self.library = library
        members = {"name": str(self._n), **marks}
        self._n += 1
        return members if library == self.library else {"library": library, **members}


class _Naming:
    """Gives each tensor of a tree a unique name."""

    def __init__(self, names: Collection[str]) -> None:
        self._taken = set(names)
        self._used: set[str] = set()
        self._own: dict[int, frozenset[str]] = {}
        self._unused: dict[int, Iterator[str]] = {}
        self.arrays: dict[str, Any] = {}
        self.repeats: dict[str, str] = {}

    def name_of(self, value: Any, own: str, path: str) -> str:
        if type(value) is not TensorLeaf:
            name = self._free(own)
            self.arrays[name] = value
            return name
        place = id(value.names)
        if place not in self._own:
            self._own[place], self._unused[place] = frozenset(value.names), iter(value.names)
        if path in self._own[place] and path not in self._used:
            name = path
        else:
            name = next((name for name in self._unused[place] if name not in self._used), "")
        if not name:
            name = self._free(own)
            self.repeats[name] = value.names[0]
        self._used.add(name)
        return name

    def _free(self, own: str) -> str:
        name, number = own, 1
        while name in self._taken:
            number += 1
            name = f"{own}#{number}"
        self._taken.add(name)
        return name

"""The metadata about a saved state: which tensors share memory, and the tree of all other data. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from math import prod
from typing import TypeVar

import msgspec

from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import FormatError, LimitError, TensorkeepError, UnsupportedError
from tensorkeep.formats.safetensors import Alias, State, check_owner, check_view, parse_state
from tensorkeep.state import Node, container_paths, described, joined, parts_of, plain_values, read_tree
from tensorkeep.texts import counted

_T = TypeVar("_T")


class View(msgspec.Struct, frozen=True):
    """A tensor that is stored inside another.

    Attributes:
        alias: Its record in the file.
        entry: Its dtype and shape, and the place of its first byte; it has no bytes of its own.
        note: How it relates to the other tensor, for people.
    """

    alias: Alias
    entry: TensorEntry
    note: str


class StateReport(msgspec.Struct, frozen=True):
    """The metadata about a state.

    Attributes:
        version: Its version; None if it cannot be read.
        library: The array library of its tensors, if known.
        views: Tensors that are stored inside others, by name.
        storages: Names that only hold memory for other tensors, to how many share it.
        tree: The nodes of the tree, checked; None if there is no readable one.
        paths: Names of its containers, for references to them.
        n_values: Values that are not tensors.
        problem: Why part of it is unreadable; None if all of it was read.
    """

    version: int | None = None
    library: str | None = None
    views: Mapping[str, View] = {}
    storages: Mapping[str, int] = {}
    tree: Node = None
    paths: tuple[str, ...] = ()
    n_values: int = 0
    problem: str | None = None

    @property
    def n_tied(self) -> int:
        """Number of tensors that are another tensor under a second name."""
        return sum(view.alias.is_whole for view in self.views.values())

    @property
    def has_content(self) -> bool:
        """Whether it adds anything to the names of tensors."""
        tree = self.tree
        is_flat = type(tree) is list and tree[0] == "dict" and all(type(part) is dict for part in tree[2::2])
        return bool(self.problem or self.views or (tree is not None and not is_flat))

    def note_of(self, name: str) -> str:
        """Return a note about a tensor's memory, for people; empty if the tensor shares none."""
        if name in self.views:
            return self.views[name].note
        n_sharing = self.storages.get(name)
        return "" if n_sharing is None else f"memory of {counted(n_sharing, 'tensor')}"


def read_state(text: str | None, stored: Mapping[str, TensorEntry]) -> StateReport | None:
    """Read the metadata about a state, as far as it is readable."""
    if text is None:
        return None
    problems: list[str] = []
    state = _read(problems, lambda: parse_state(text))
    if state is None:
        return StateReport(problem=problems[0])
    views = _read(problems, lambda: {name: _view(name, alias, stored) for name, alias in state.aliases.items()}) or {}
    n_sharing = Counter(view.alias.of for view in views.values())
    tree = None if problems else _read(problems, lambda: _tree(state, lambda name: name in stored or name in views))
    paths = _read(problems, lambda: tuple(container_paths(tree)))
    n_values = _read(problems, lambda: 0 if tree is None else sum(1 for _ in plain_values(tree)))
    return StateReport(
        version=state.state,
        library=state.library,
        views=views,
        storages={name: n_sharing[name] for name in state.storages if name in n_sharing},
        tree=None if problems else tree,
        paths=paths or (),
        n_values=n_values or 0,
        problem=problems[0] if problems else None,
    )


def _read(problems: list[str], read: Callable[[], _T]) -> _T | None:
    try:
        return read()
    except (FormatError, LimitError, UnsupportedError) as error:
        problems.append(_sentence(error))
        return None


def _sentence(error: TensorkeepError) -> str:
    """Write an error without its path, which the user already knows."""
    return str(type(error)(error.message, expected=error.expected, found=error.found, hint=error.hint))


def _tree(state: State, has_tensor: Callable[[str], bool]) -> Node:
    text = bytes(state.tree)
    return read_tree(text, has_tensor) if text else None


def _view(name: str, alias: Alias, stored: Mapping[str, TensorEntry]) -> View:
    """Describe a tensor that is stored inside another."""
    check_owner(name, alias, stored)
    owner = stored[alias.of]
    check_view(name, alias, owner)
    dtype = alias.dtype or owner.dtype
    shape = owner.shape if alias.shape is None else alias.shape
    start = owner.data_offsets[0] + alias.offset
    return View(alias, TensorEntry(dtype, shape, (start, start)), _note(alias, owner, dtype, shape))


def _note(alias: Alias, owner: TensorEntry, dtype: str, shape: tuple[int, ...]) -> str:
    if alias.is_whole:
        return f"= {alias.of}"
    facts = [f"view of {alias.of}{_rows(alias, owner, dtype, shape)}"]
    if alias.strides is not None:
        facts.append(f"strides {list(alias.strides)}")
    facts += ["conjugate"] * alias.is_conj + ["negative"] * alias.is_neg
    return ", ".join(facts)


def _rows(alias: Alias, owner: TensorEntry, dtype: str, shape: tuple[int, ...]) -> str:
    """Write which rows of the other tensor it is, or at which of its bytes it begins."""
    n_rows = owner.shape[0] if owner.shape else 0
    row_nbytes = owner.nbytes // n_rows if n_rows else 0
    row = ALL_BY_NAME[dtype]
    if alias.strides is None and dtype == owner.dtype and row_nbytes and alias.offset % row_nbytes == 0:
        nbytes = prod(shape) * (row.bits // 8)
        if nbytes % row_nbytes == 0:
            start = alias.offset // row_nbytes
            return f"[{start}:{start + nbytes // row_nbytes}]"
    return f" from byte {alias.offset:,}" if alias.offset else ""


def value_text(state: StateReport | None, name: str) -> str | None:
    """Write a value that is not a tensor, found by its dotted name."""
    if state is None:
        return None
    waiting = [("", state.tree)]
    while waiting:
        path, node = waiting.pop()
        for label, child in parts_of(node) or ():
            child_path = joined(path, label)
            if child_path == name and type(child) is not dict:
                return described(child, state.paths)
            if name.startswith(f"{child_path}."):
                waiting.append((child_path, child))
    return None

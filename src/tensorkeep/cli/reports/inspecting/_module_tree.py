"""Tensors as the tree of modules that their names spell, with equal layers folded. Pure.

Names are split at dots; at slashes if all names of several parts have them, as in files of Keras and TensorFlow. A
module with a single child is joined with it (`encoder.layer`). Numbered siblings with equal content (the same names,
dtypes and shapes, all the way down) are one branch, even if others come between them, as in models that alternate
between two kinds of layer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

import msgspec

from tensorkeep.cli.reports.inspecting._report import Order, natural_key
from tensorkeep.entries import TensorEntry

_MAX_DEPTH = 24
"""Most parts of a name, so that a name with a million dots is not a million modules."""

_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
_MAX_RANGES = 4


class Branch(msgspec.Struct, frozen=True, gc=False):
    """A tensor or a module, or several with equal content.

    Attributes:
        label: Its part of the name, such as `"weight"`, `"encoder.layer"` or `"0..11"`.
        entry: The tensor (the first of several), or None for a module.
        n_copies: Number of tensors or modules that were folded into this branch.
        n_tensors: Tensors in one copy.
        nbytes: Bytes of one copy.
        start: Where the data of the first copy begins, in bytes from the start of the file's data.
        content: A number that is equal for equal content.
        children: The contents of the module, in each copy.
        note: A note about the tensor's memory.
    """

    label: str
    entry: TensorEntry | None
    n_copies: int
    n_tensors: int
    nbytes: int
    start: int
    content: int
    children: tuple[Branch, ...] = ()
    note: str = ""


def tree_of(
    entries: Mapping[str, TensorEntry],
    *,
    order: Order = Order.NAME,
    folds: bool = True,
    note_of: Callable[[str], str] | None = None,
) -> tuple[Branch, ...]:
    """Arrange tensors by the modules that their names spell."""
    separator = _separator(entries)
    return _Tree(order, separator, folds=folds).children(_nested(entries, separator, note_of))


def _separator(names: Iterable[str]) -> str:
    has_slash = ["/" in name for name in names if "/" in name or "." in name]
    return "/" if has_slash and all(has_slash) else "."


class _Module(msgspec.Struct):
    """A module that is being built; a module and a tensor may have the same name."""

    tensors: dict[str, tuple[TensorEntry, str]]
    modules: dict[str, _Module]


def _nested(entries: Mapping[str, TensorEntry], separator: str, note_of: Callable[[str], str] | None) -> _Module:
    root = _Module({}, {})
    for name, entry in entries.items():
        *parents, label = name.split(separator, _MAX_DEPTH - 1)
        module = root
        for parent in parents:
            inner = module.modules.get(parent)
            if inner is None:
                inner = module.modules[parent] = _Module({}, {})
            module = inner
        module.tensors[label] = entry, note_of(name) if note_of else ""
    return root


class _Tree:
    """Turns modules into branches, and numbers their contents."""

    def __init__(self, order: Order, separator: str, *, folds: bool) -> None:
        self._order = order
        self._separator = separator
        self._folds = folds
        self._contents: dict[object, int] = {}

    def children(self, module: _Module) -> tuple[Branch, ...]:
        """Return the branches of a module, folded and sorted."""
        return self._arranged(self._branches(module))

    def _branches(self, module: _Module) -> list[Branch]:
        tensors = [self._tensor(label, entry, note) for label, (entry, note) in module.tensors.items()]
        modules = [self._module(label, inner) for label, inner in module.modules.items()]
        return sorted(tensors + modules, key=lambda branch: natural_key(branch.label))

    def _tensor(self, label: str, entry: TensorEntry, note: str) -> Branch:
        content = self._number_of((entry.dtype, entry.shape, entry.nbytes, note))
        return Branch(label, entry, 1, 1, entry.nbytes, entry.data_offsets[0], content, note=note)

    def _module(self, label: str, module: _Module) -> Branch:
        branches = self._branches(module)
        content = self._number_of(tuple((branch.label, branch.content) for branch in branches))
        return Branch(
            label,
            entry=None,
            n_copies=1,
            n_tensors=sum(branch.n_tensors for branch in branches),
            nbytes=sum(branch.nbytes for branch in branches),
            start=min(branch.start for branch in branches),
            content=content,
            children=self._arranged(branches),
        )

    def _number_of(self, content: object) -> int:
        return self._contents.setdefault(content, len(self._contents))

    def _arranged(self, branches: list[Branch]) -> tuple[Branch, ...]:
        if self._folds:
            branches = _folded(branches)
        if self._order is Order.SIZE:
            branches = sorted(branches, key=lambda branch: -branch.n_copies * branch.nbytes)
        elif self._order is Order.OFFSET:
            branches = sorted(branches, key=lambda branch: branch.start)
        return tuple(map(self._joined, branches))

    def _joined(self, branch: Branch) -> Branch:
        """Join a module with its only child, unless the module is several."""
        if branch.n_copies > 1 or len(branch.children) != 1:
            return branch
        only = branch.children[0]
        return msgspec.structs.replace(only, label=f"{branch.label}{self._separator}{only.label}")


def _folded(branches: Iterable[Branch]) -> list[Branch]:
    """Fold numbered siblings with equal content into one branch, at the place of the first."""
    groups: dict[int | str, list[Branch]] = {}
    for place, branch in enumerate(branches):
        is_numbered = _NUMBER.fullmatch(branch.label) is not None
        groups.setdefault(branch.content if is_numbered else f"{place}", []).append(branch)
    return [group[0] if len(group) == 1 else _fold(group) for group in groups.values()]


def _fold(group: list[Branch]) -> Branch:
    label = _ranges_text([int(branch.label) for branch in group])
    return msgspec.structs.replace(group[0], label=label, n_copies=len(group))


def _ranges_text(numbers: list[int]) -> str:
    """Write ascending numbers as ranges: `0..2, 5`, or `1, 3, ..., 31` if there are many."""
    breaks = [place for place, (low, high) in enumerate(pairwise(numbers), start=1) if high != low + 1]
    ranges = [
        str(numbers[begin]) if end == begin + 1 else f"{numbers[begin]}..{numbers[end - 1]}"
        for begin, end in zip([0, *breaks], [*breaks, len(numbers)], strict=True)
    ]
    if len(ranges) > _MAX_RANGES:
        ranges = [*ranges[:2], "...", ranges[-1]]
    return ", ".join(ranges)

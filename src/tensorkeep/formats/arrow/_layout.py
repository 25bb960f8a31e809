"""How the columns of a schema lie in each batch: a list of nodes and buffers, in the order of the fields. Pure."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from math import prod
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from tensorkeep.errors import FormatError
from tensorkeep.formats.arrow._schema import Form, Schema, Type
from tensorkeep.limits import MAX_I64, MAX_NDIM

_FIXED_SHAPE: Final = "arrow.fixed_shape_tensor"
_SHAPE_KEY: Final = "ARROW:extension:metadata"
_MAX_KEPT_TEXT: Final = 200
"""Characters of a description up to which its meaning is kept, for the columns that follow."""

_N_BUFFERS: Final = {
    **dict.fromkeys(("null", "run_end_encoded"), 0),
    **dict.fromkeys(("fixed_size_list", "struct"), 1),
    **dict.fromkeys(("list", "large_list", "map", "binary_view", "utf8_view"), 2),
    **dict.fromkeys(("binary", "utf8", "large_binary", "large_utf8", "list_view", "large_list_view"), 3),
}
"""Buffers of a node, validity included; 2 for all others. Lists have offsets, and their elements are children."""

_TEXT_WIDTHS: Final = {"binary": 4, "utf8": 4, "large_binary": 8, "large_utf8": 8}
_VIEWS: Final = frozenset(("binary_view", "utf8_view"))
_N_LIST_BUFFERS: Final = {"list": 2, "large_list": 2, "map": 2, "list_view": 3, "large_list_view": 3}


class Node(msgspec.Struct, frozen=True):
    """One field of a batch.

    Attributes:
        n_buffers: How many buffers it has.
        is_view: Whether more follow, so many as the batch says.
        per_row: Elements in each row; None if that varies.
    """

    n_buffers: int
    is_view: bool
    per_row: int | None


class Rows(msgspec.Struct, frozen=True):
    """The elements of each row of a column; columns of one type have one such object.

    Attributes:
        per_row: How many elements there are.
        shape: Extents of one row.
        strides: Elements from one entry to the next in each.
    """

    per_row: int = 1
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    def of(self, size: int) -> Rows:
        return self.divided((size,), (1,), size)

    def of_lists(self, form: Form) -> Rows:
        """Return the rows of a list, in the shape of tensors if it is a column of tensors."""
        if form.extension != _FIXED_SHAPE:
            return self.of(form.type.size)
        text = form.metadata.get(_SHAPE_KEY, "")
        read = _tensor_rows if len(text) < _MAX_KEPT_TEXT else _tensor_rows.__wrapped__
        return read(self, text, form.type.size)

    def divided(self, shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> Rows:
        outer = tuple(stride * size for stride in self.strides)
        rows = Rows(self.per_row * size, (*self.shape, *shape), (*outer, *strides))
        if len(rows.shape) >= MAX_NDIM or rows.per_row > MAX_I64:
            raise FormatError("the rows of a column are larger than any tensor", found=f"{rows.shape!r:.100}")
        return rows


class Leaf(msgspec.Struct, frozen=True):
    """What a column is, or a part of one, that is a tensor or strings; columns that are alike have one such object.

    Attributes:
        suffix: What follows the name of the column: after dots, fields of structs.
        text: Its type, for people.
        dtype: Name in the dtype table; None for strings.
        text_width: Bytes of each offset of strings; 0 for tensors.
        is_binary: Whether strings are bytes.
        rows: The elements of each row.
        nodes: The nodes whose nulls are nulls of it, counted from the first of the column; the last is its own.
    """

    suffix: str
    text: str
    dtype: str | None
    text_width: int
    is_binary: bool
    rows: Rows
    nodes: tuple[int, ...]


class LeafPlace(NamedTuple):
    """A column that can be read, or a part of one: its name, what it is, and the first node of the column."""

    name: str
    leaf: Leaf
    first: int


class Layout:
    """What each batch consists of.

    Attributes:
        nodes: All fields, in the order of their nodes.
        leaves: Those that can be read.
        own_nodes: The node of each of these that its elements belong to.
        others: Name to type, for the columns that cannot.
    """

    def __init__(self, schema: Schema) -> None:
        self.nodes: list[Node] = []
        self.leaves: list[LeafPlace] = []
        others: list[tuple[str, str]] = []
        known: dict[int, _Parts] = {}
        for field in schema.fields:
            name, form = field.name, field.form
            parts = known.get(id(form))
            if parts is None:
                parts = known[id(form)] = _Parts(form)
            first = len(self.nodes)
            self.nodes += parts.nodes
            self.leaves += [LeafPlace(name + leaf.suffix, leaf, first) for leaf in parts.leaves]
            others += [(name + suffix, text) for suffix, text in parts.others]
        self.own_nodes = np.array([first + leaf.nodes[-1] for _, leaf, first in self.leaves], np.intp)
        self.others = dict(others)
        _check_names([name for name, _, _ in self.leaves] + [name for name, _ in others])


def _check_names(names: list[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise FormatError("two columns have one name", found=repr(twice[:100]), hint="Rename one of them")


class _Parts:
    """The nodes of a column, its leaves, and what in it cannot be read, with suffixes."""

    def __init__(self, form: Form) -> None:
        self.nodes: list[Node] = []
        self.leaves: list[Leaf] = []
        self.others: list[tuple[str, str]] = []
        self._add(form, "", Rows(), ())

    def _add(self, form: Form, suffix: str, rows: Rows, nodes: tuple[int, ...]) -> None:
        kind, nodes = form.type.kind, (*nodes, len(self.nodes))
        self.nodes.append(_node(form.type, rows.per_row, is_encoded=form.is_encoded))
        if form.is_encoded:
            self.others.append((suffix, f"{form.type.text} in a dictionary"))
        elif kind == "struct" and form.children:
            for child in form.children:
                self._add(child.form, f"{suffix}.{child.name}", rows, nodes)
        elif kind == "fixed_size_list" and len(form.children) == 1:
            self._add(form.children[0].form, suffix, rows.of_lists(form), nodes)
        elif form.type.dtype is not None or (kind in _TEXT_WIDTHS and not rows.shape):
            if kind == "fixed_size_binary":
                rows = rows.of(form.type.size)
            width = _TEXT_WIDTHS.get(kind, 0)
            self.leaves.append(Leaf(suffix, form.type.text, form.type.dtype, width, "binary" in kind, rows, nodes))
        else:
            self.others.append((suffix, form.type.text))
            self._skip(form)

    def _skip(self, form: Form) -> None:
        waiting = list(reversed(form.children))
        while waiting:
            child = waiting.pop().form
            self.nodes.append(_node(child.type, None, is_encoded=child.is_encoded))
            waiting.extend(() if child.is_encoded else reversed(child.children))


@lru_cache(1024)
def _node(found: Type, per_row: int | None, *, is_encoded: bool) -> Node:
    if is_encoded:
        return Node(2, is_view=False, per_row=per_row)
    if found.kind == "union":
        return Node(1 + found.is_dense, is_view=False, per_row=per_row)
    n_buffers = _N_LIST_BUFFERS.get(found.kind, _N_BUFFERS.get(found.kind, 2))
    return Node(n_buffers, is_view=found.kind in _VIEWS, per_row=per_row)


@lru_cache(1024)
def _tensor_rows(outer: Rows, text: str, size: int) -> Rows:
    shape, strides = _tensor_shape(text, size)
    return outer.divided(shape, strides, size)


def _tensor_shape(text: str, size: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return shape and strides of each tensor in a column, from its description and the number of elements."""
    shape: Any = None
    order: Any = None
    try:
        facts: Any = msgspec.json.decode(text.encode())
        shape = facts["shape"]
        order = facts.get("permutation") or list(range(len(shape)))
    except (msgspec.MsgspecError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    if not _is_whole(shape) or not _is_whole(order) or sorted(order) != list(range(len(shape))):
        raise FormatError("a column of tensors has no shape", found=f"{text!r:.100}")
    if prod(shape) != size:
        raise FormatError(
            "a column of tensors has another shape than its elements", expected=f"{size:,}", found=f"{shape}"
        )
    steps = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return tuple(shape[axis] for axis in order), tuple(steps[axis] for axis in order)


def _is_whole(numbers: Any) -> bool:
    return (
        type(numbers) is list
        and len(numbers) <= MAX_NDIM
        and all(type(number) is int and number >= 0 for number in numbers)
    )

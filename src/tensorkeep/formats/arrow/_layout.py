"""How the columns of a schema lie in each batch: a list of nodes and buffers, in the order of the fields. Pure."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, Final

import msgspec

from tensorkeep.errors import FormatError
from tensorkeep.formats.arrow._schema import Field, Schema, Type
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

    def of_lists(self, field: Field) -> Rows:
        """Return the rows of a list, in the shape of tensors if it is a column of tensors."""
        if field.extension != _FIXED_SHAPE:
            return self.of(field.type.size)
        text = field.metadata.get(_SHAPE_KEY, "")
        read = _tensor_rows if len(text) < _MAX_KEPT_TEXT else _tensor_rows.__wrapped__
        return read(self, text, field.type.size)

    def divided(self, shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> Rows:
        outer = tuple(stride * size for stride in self.strides)
        rows = Rows(self.per_row * size, (*self.shape, *shape), (*outer, *strides))
        if len(rows.shape) >= MAX_NDIM or rows.per_row > MAX_I64:
            raise FormatError("the rows of a column are larger than any tensor", found=f"{rows.shape!r:.100}")
        return rows


class Leaf(msgspec.Struct, frozen=True):
    """A column, or a part of one, that is a tensor or strings.

    Attributes:
        name: Its name; after dots, fields of structs.
        text: Its type, for people.
        dtype: Name in the dtype table; None for strings.
        text_width: Bytes of each offset of strings; 0 for tensors.
        is_binary: Whether strings are bytes.
        rows: The elements of each row.
        nodes: Numbers of the nodes whose nulls are nulls of the column; the last is its own.
    """

    name: str
    text: str
    dtype: str | None
    text_width: int
    is_binary: bool
    rows: Rows
    nodes: tuple[int, ...]


class Layout:
    """What each batch consists of.

    Attributes:
        nodes: All fields, in the order of their nodes.
        leaves: Those that can be read.
        others: Name to type, for the columns that cannot.
    """

    def __init__(self, schema: Schema) -> None:
        self.nodes: list[Node] = []
        self.leaves: list[Leaf] = []
        self.others: dict[str, str] = {}
        self._names: set[str] = set()
        for field in schema.fields:
            self._add(field, field.name, Rows(), ())

    def _add(self, field: Field, name: str, rows: Rows, nodes: tuple[int, ...]) -> None:
        kind, nodes = field.type.kind, (*nodes, len(self.nodes))
        self.nodes.append(_node(field.type, rows.per_row, is_encoded=field.is_encoded))
        if field.is_encoded:
            self._leave_out(name, f"{field.type.text} in a dictionary")
        elif kind == "struct" and field.children:
            for child in field.children:
                self._add(child, f"{name}.{child.name}", rows, nodes)
        elif kind == "fixed_size_list" and len(field.children) == 1:
            self._add(field.children[0], name, rows.of_lists(field), nodes)
        elif field.type.dtype is not None or (kind in _TEXT_WIDTHS and not rows.shape):
            if kind == "fixed_size_binary":
                rows = rows.of(field.type.size)
            self._note(name)
            width = _TEXT_WIDTHS.get(kind, 0)
            self.leaves.append(Leaf(name, field.type.text, field.type.dtype, width, "binary" in kind, rows, nodes))
        else:
            self._leave_out(name, field.type.text)
            self._skip(field)

    def _skip(self, field: Field) -> None:
        waiting = list(reversed(field.children))
        while waiting:
            child = waiting.pop()
            self.nodes.append(_node(child.type, None, is_encoded=child.is_encoded))
            waiting.extend(() if child.is_encoded else reversed(child.children))

    def _leave_out(self, name: str, text: str) -> None:
        self._note(name)
        self.others[name] = text

    def _note(self, name: str) -> None:
        if name in self._names:
            raise FormatError("two columns have one name", found=repr(name[:100]), hint="Rename one of them")
        self._names.add(name)


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

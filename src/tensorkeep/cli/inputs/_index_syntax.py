"""Parses an index such as `[0:4, :8]`. Pure.

The text is parsed as Python but never evaluated: the few literals that an index consists of are read from the syntax
tree, and anything else is refused.
"""

from __future__ import annotations

import ast
import warnings
from types import EllipsisType
from typing import TypeAlias

from tensorkeep.errors import SelectionError

IndexItem: TypeAlias = "int | slice | EllipsisType | list[int] | list[bool] | None"
"""One item of an index, between two commas."""

Index = tuple[IndexItem, ...]


def parse_index_text(text: str) -> Index:
    """Parse an index as in Python code; the outer brackets are optional."""
    subscript = _subscript(f"_{text}") or _subscript(f"_[{text}]")
    items = None if subscript is None or not text.strip("[] ") else _items(subscript)
    if items is None:
        raise SelectionError(
            "not an index",
            expected="integers, slices (0:4), ..., None, and lists of integers or of True and False",
            found=text.strip() or "nothing",
        )
    return items


class _OtherSyntaxError(Exception):
    """A syntax node that an index cannot contain."""


def _subscript(source: str) -> ast.expr | None:
    """Return the content of the brackets in `_[…]`, or None if the source is something else."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as "invalid decimal literal", which is refused anyway
            tree = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    is_plain = isinstance(tree, ast.Subscript) and isinstance(tree.value, ast.Name) and tree.value.id == "_"
    return tree.slice if isinstance(tree, ast.Subscript) and is_plain else None


def _items(subscript: ast.expr) -> Index | None:
    """Return the items, or None if one of them is not valid in an index."""
    try:
        return tuple(_item(node) for node in (subscript.elts if isinstance(subscript, ast.Tuple) else [subscript]))
    except _OtherSyntaxError:
        return None


def _item(node: ast.expr) -> IndexItem:
    match node:
        case ast.Constant(value=None | EllipsisType() as value):
            return value
        case ast.Slice(lower, upper, step):
            item = slice(_bound(lower), _bound(upper), _bound(step))
            if item.step == 0:
                raise SelectionError("slice step cannot be zero")
            return item
        case ast.List(elts):
            return _booleans(elts) or [_integer(element) for element in elts]
    return _integer(node)


def _bound(node: ast.expr | None) -> int | None:
    match node:
        case None | ast.Constant(value=None):
            return None
    return _integer(node)


def _booleans(nodes: list[ast.expr]) -> list[bool]:
    """Return the elements of a list of booleans, or an empty list for any other list."""
    values = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, bool)]
    return values if len(values) == len(nodes) else []


def _integer(node: ast.expr) -> int:
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as magnitude)) if magnitude is not True:
            return -magnitude
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return value
    raise _OtherSyntaxError

"""How two checkpoints differ. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from tensorkeep.cli.terminal import (
    Column,
    Line,
    columns,
    distinct_names,
    printable,
    room_for_first,
    shape_text,
    share_text,
)
from tensorkeep.texts import counted, listed

if TYPE_CHECKING:
    from tensorkeep.checkpoint import DataDiff, Diff, TensorDiff
    from tensorkeep.tensors import LazyTensor


class Comparison(msgspec.Struct, frozen=True):
    """Two checkpoints and how they differ.

    Attributes:
        path_a: Path of the first, as given.
        path_b: Path of the second, as given.
        a: Tensors of the first.
        b: Tensors of the second.
        diff: How they differ.
        with_values: Whether elements were compared too.
    """

    path_a: str
    path_b: str
    a: Mapping[str, LazyTensor]
    b: Mapping[str, LazyTensor]
    diff: Diff
    with_values: bool

    def lines(self, width: int | None) -> Iterator[Line]:
        """Write what differs, and nothing that does not."""
        diff = self.diff
        changed = {tensor.name: _row(tensor) for tensor in diff.changed}
        only_in_a = {name: _described_row(self.a[name]) for name in diff.only_in_a}
        only_in_b = {name: _described_row(self.b[name]) for name in diff.only_in_b}
        names = distinct_names([*changed, *only_in_a, *only_in_b], _room(changed, only_in_a, only_in_b, width))
        if changed:
            yield from columns(_COLUMNS, [[[(names[name], "")], *row] for name, row in changed.items()])
            yield []
        yield from _not_compared(diff.changed)
        yield from _only(self.path_a, only_in_a, names)
        yield from _only(self.path_b, only_in_b, names)
        yield from _data(diff.ties, "memory")
        yield from _data(diff.data, "value")
        yield from _left_out(self.path_a, diff.not_compared_in_a)
        yield from _left_out(self.path_b, diff.not_compared_in_b)
        yield _summary(self)

    def members(self) -> dict[str, object]:
        """Return the same for JSON."""
        diff = self.diff
        return {
            "a": self.path_a,
            "b": self.path_b,
            "is_equal": diff.is_equal,
            "with_values": self.with_values,
            "n_equal": diff.n_equal,
            "n_unread": diff.n_unread,
            "only_in_a": (_described(self.a[name]) for name in diff.only_in_a),
            "only_in_b": (_described(self.b[name]) for name in diff.only_in_b),
            "changed": map(_changed_members, diff.changed),
            "not_compared_in_a": iter(diff.not_compared_in_a),
            "not_compared_in_b": iter(diff.not_compared_in_b),
            "ties": map(_data_members, diff.ties),
            "data": map(_data_members, diff.data),
        }


_Rows: TypeAlias = "dict[str, list[Line]]"
"""The name of a tensor to the other cells of its row."""

_INDENT: Final = "  "

_COLUMNS = (
    Column("name"),
    Column("dtype"),
    Column("shape"),
    Column("different", "right"),
    Column("share", "right"),
    Column("max abs", "right"),
    Column("max rel", "right"),
    Column("NaN", "right"),
    Column("Inf", "right"),
)


def _row(tensor: TensorDiff) -> list[Line]:
    return [
        [(_both(printable(tensor.dtype_a), printable(tensor.dtype_b)), "dtype")],
        [(_both(shape_text(tensor.shape_a), shape_text(tensor.shape_b)), "")],
        [(_how_many(tensor), "")],
        [(share_text(tensor.n_different, tensor.n_elements) if tensor.n_different else "", "dim")],
        [(_number(tensor.max_abs), "")],
        [(_number(tensor.max_rel), "")],
        [(_counts(tensor.n_nan_a, tensor.n_nan_b), "warning")],
        [(_counts(tensor.n_inf_a, tensor.n_inf_b), "warning")],
    ]


def _how_many(tensor: TensorDiff) -> str:
    """Write how many elements differ, or what differs if no count is known."""
    if tensor.problem is not None:
        return "not compared"
    if tensor.n_different is None:
        return "bytes" if tensor.is_bitwise_equal is False and tensor.shape_a == tensor.shape_b else ""
    is_same_kind = tensor.dtype_a == tensor.dtype_b
    return "bits only" if is_same_kind and not tensor.n_different else f"{tensor.n_different:,}"


def _not_compared(changed: Sequence[TensorDiff]) -> Iterator[Line]:
    problems = [tensor.problem for tensor in changed if tensor.problem is not None]
    for problem in problems:
        yield [(printable(problem), "warning")]
    if problems:
        yield []


def _both(a: str, b: str) -> str:
    return a if a == b else f"{a} -> {b}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _counts(a: int | None, b: int | None) -> str:
    """Write the counts of both, if either has any."""
    return _both(f"{a or 0:,}", f"{b or 0:,}") if a or b else ""


def _room(changed: _Rows, only_in_a: _Rows, only_in_b: _Rows, width: int | None) -> int | None:
    """Return the cells for a name in the widest table: all tables have the same short names."""
    if width is None:
        return None
    headings: list[Line] = [[(column.heading, "")] for column in _COLUMNS[1:]]
    rooms = [room_for_first([headings, *changed.values()], width)] if changed else []
    rooms += [room_for_first(list(rows.values()), width - len(_INDENT)) for rows in (only_in_a, only_in_b) if rows]
    return min(rooms, default=width)


def _described_row(tensor: LazyTensor) -> list[Line]:
    return [[(printable(tensor.dtype), "dtype")], [(shape_text(tensor.shape), "")]]


def _only(path: str, rows: _Rows, names: Mapping[str, str]) -> Iterator[Line]:
    if not rows:
        return
    yield [(f"only in {path}", "heading")]
    layout = (Column(""), Column(""), Column(""))
    yield from columns(layout, [[[(_INDENT + names[name], "")], *row] for name, row in rows.items()], headings=False)
    yield []


def _data(differences: Sequence[DataDiff], what: str) -> Iterator[Line]:
    if not differences:
        return
    rows: list[list[Line]] = [
        [
            [(printable(difference.path) or "(all)", "")],
            [("-", "dim") if difference.a is None else (printable(difference.a), "")],
            [("->", "dim")],
            [("-", "dim") if difference.b is None else (printable(difference.b), "")],
        ]
        for difference in differences
    ]
    layout = (Column("name"), Column(what), Column(""), Column(""))
    yield from columns(layout, rows)
    yield []


def _left_out(path: str, names: Sequence[str]) -> Iterator[Line]:
    if names:
        yield [(f"not compared in {path}, as they are not tensors: {printable(listed(names))}", "warning")]


def _summary(comparison: Comparison) -> Line:
    diff = comparison.diff
    compared = _how(comparison)
    if diff.is_equal:
        return [("equal", "title"), (f": {counted(diff.n_equal, 'tensor')}{compared}", "")]
    n_not_compared = sum(tensor.problem is not None for tensor in diff.changed)
    n_changed = len(diff.changed) - n_not_compared
    facts = [
        f"{counted(n_changed, 'tensor')} {'differs' if n_changed == 1 else 'differ'}",
        *([f"{n_not_compared:,} not compared"] if n_not_compared else []),
        f"{len(diff.only_in_a):,} only in {comparison.path_a}",
        f"{len(diff.only_in_b):,} only in {comparison.path_b}",
    ]
    if diff.ties:
        facts.append(f"{counted(len(diff.ties), 'tensor')} tied differently")
    if diff.data:
        facts.append(f"{counted(len(diff.data), 'value')} {'differs' if len(diff.data) == 1 else 'differ'}")
    facts.append(f"{diff.n_equal:,} equal{compared}")
    return [("different", "title"), (f": {', '.join(facts)}", "")]


def _how(comparison: Comparison) -> str:
    """Say what was not compared or not read."""
    if not comparison.with_values:
        return " in name, dtype and shape; values were not compared"
    n = comparison.diff.n_unread
    return (
        f" ({n:,} by their digests, without reading them: `tensorkeep verify` checks that the bytes still match)"
        if n
        else ""
    )


def _data_members(difference: DataDiff) -> dict[str, str | None]:
    return {"name": difference.path, "a": difference.a, "b": difference.b}


def _described(tensor: LazyTensor) -> dict[str, object]:
    return {"name": tensor.name, "dtype": tensor.dtype, "shape": tensor.shape}


def _changed_members(tensor: TensorDiff) -> dict[str, object]:
    return {
        "name": tensor.name,
        "dtype": (tensor.dtype_a, tensor.dtype_b),
        "shape": (tensor.shape_a, tensor.shape_b),
        "is_bitwise_equal": tensor.is_bitwise_equal,
        "n_different": tensor.n_different,
        "max_abs": _json_number(tensor.max_abs),
        "max_rel": _json_number(tensor.max_rel),
        "norm": _json_number(tensor.norm),
        "relative": _json_number(tensor.relative),
        "n_nan": (tensor.n_nan_a, tensor.n_nan_b),
        "n_inf": (tensor.n_inf_a, tensor.n_inf_b),
        "problem": tensor.problem,
    }


def _json_number(value: float | None) -> float | str | None:
    return value if value is None or isfinite(value) else str(value)

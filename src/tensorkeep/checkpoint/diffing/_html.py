"""Differences as HTML for notebooks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tensorkeep.checkpoint.diffing._changes import NumberDiff
from tensorkeep.checkpoint.diffing._states import DataDiff
from tensorkeep.markup import Markup, folded, table
from tensorkeep.texts import counted, shape_text

Row = tuple[str, ...]


def tensor_row(
    name: str, a: tuple[str, tuple[int, ...]], b: tuple[str, tuple[int, ...]], n: int, numbers: NumberDiff | None
) -> Row:
    """Return the row of a tensor that changed, from its dtype and shape in both, and its number of elements."""
    first, second = (f"{dtype} {shape_text(shape)}" for dtype, shape in (a, b))
    texts = name, first, "same" if a == b else second
    if numbers is None:
        return *texts, "", "", ""
    return *texts, f"{numbers.n_different:,} of {n:,}", f"{numbers.max_abs:.3g}", f"{numbers.max_rel:.3g}"


def changed_tensors(rows: Iterable[Row], n: int) -> Iterator[Markup]:
    """Give the tensors that changed, as an open table."""
    if n:
        headings = ("tensor", "a", "b", "different", "max |a - b|", "max relative")
        yield folded(f"{counted(n, 'tensor')} changed", table(headings, rows, n, numbers=(3, 4, 5)), is_open=True)


def folded_names(title: str, found: Sequence[str]) -> Iterator[Markup]:
    """Give names, folded."""
    if found:
        rows = ((name,) for name in found)
        yield folded(f"{title}: {counted(len(found), 'tensor')}", table(("name",), rows, len(found)))


def folded_values(title: str, found: Sequence[DataDiff]) -> Iterator[Markup]:
    """Give values that differ, folded."""
    if found:
        rows = ((each.path, each.a or "", each.b or "") for each in found)
        yield folded(f"{title}: {counted(len(found), 'difference')}", table(("name", "a", "b"), rows, len(found)))

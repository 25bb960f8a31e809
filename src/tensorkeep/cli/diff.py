"""`tensorkeep diff`: what sets two checkpoints apart."""

from __future__ import annotations

import re
from fnmatch import translate
from typing import TYPE_CHECKING, Annotated

import typer

import tensorkeep
from tensorkeep.cli._arguments import AsJson, Select
from tensorkeep.cli._comparison import Comparison, comparison_lines, comparison_members
from tensorkeep.cli._json import document_lines
from tensorkeep.cli._render import progress_bar, show, show_text, terminal_width

if TYPE_CHECKING:
    from tensorkeep import LazyTensors

__all__ = ["diff"]

_First = Annotated[str, typer.Argument(metavar="A", help="A file, a directory or an index.", show_default=False)]
_Second = Annotated[str, typer.Argument(metavar="B", help="Another.", show_default=False)]


def diff(
    a: _First,
    b: _Second,
    *,
    values: Annotated[
        bool,
        typer.Option("--values/--no-values", help="Whether to compare elements, or names, dtypes and shapes only."),
    ] = True,
    select: Select = None,
    as_json: AsJson = False,
) -> int:
    """Compare two checkpoints.

    Shown is what differs, and nothing else: tensors that only one of them has, other dtypes and shapes, and how many
    elements differ by how much. Elements of other dtypes are compared as numbers; NaN equals NaN. How the tensors are
    spread over files does not matter. Tensors of equal digests are not read.

    The exit status is 0 where all is equal, 1 where anything differs, 2 where one of them cannot be read.
    """
    compare = tensorkeep.diff
    with tensorkeep.open(a) as all_of_a, tensorkeep.open(b) as all_of_b:
        some_of_a, some_of_b = _selected(all_of_a, all_of_b, select)
        with progress_bar("comparing") as progress:
            found = compare(some_of_a, some_of_b, values=values, progress=progress)
        comparison = Comparison(a, b, some_of_a, some_of_b, found, values)
        if as_json:
            show_text(document_lines(comparison_members(comparison)))
        else:
            show(comparison_lines(comparison, terminal_width()))
    return 0 if found.is_equal else 1


def _selected(a: LazyTensors, b: LazyTensors, patterns: list[str] | None) -> tuple[LazyTensors, LazyTensors]:
    """Choose tensors of both; a pattern may match names that only one of them has."""
    if not patterns:
        return a, b
    matches = [re.compile(translate(pattern)).match for pattern in patterns]

    def is_unwanted(name: str) -> bool:
        return not any(match(name) for match in matches)

    chosen = a.drop(is_unwanted), b.drop(is_unwanted)
    return chosen if any(chosen) else (a.select(*patterns), b)  # which says that there is none

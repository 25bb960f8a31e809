"""`tensorkeep diff`: what sets two checkpoints apart."""

from __future__ import annotations

from typing import Annotated

import typer

import tensorkeep
from tensorkeep.cli.inputs import AsJson, Select
from tensorkeep.cli.reports import Comparison, comparison_lines, comparison_members, document_lines
from tensorkeep.cli.terminal import progress_bar, show, show_text, terminal_width

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

    Of whole states it is also shown which numbers, texts and other data differ, in type or value, and which tensors
    share memory in one of them only. Patterns choose among their dotted names too, such as 'optim.*'.

    The exit status is 0 where all is equal, 1 where anything differs, 2 where one of them cannot be read.
    """
    compare = tensorkeep.diff
    with tensorkeep.open(a) as tensors_a, tensorkeep.open(b) as tensors_b:
        with progress_bar("comparing") as progress:
            found = compare(tensors_a, tensors_b, only=select or None, values=values, progress=progress)
        comparison = Comparison(a, b, tensors_a, tensors_b, found, values)
        if as_json:
            show_text(document_lines(comparison_members(comparison)))
        else:
            show(comparison_lines(comparison, terminal_width()))
    return 0 if found.is_equal else 1

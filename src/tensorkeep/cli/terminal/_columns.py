"""Lines of styled text, and columns of them. Pure.

Columns are laid out here because rich's tables wrap and measure each cell: 0.4 ms per row, or 40 s for a file with
100,000 tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec
from rich.cells import cell_len

Style = Literal["", "dim", "heading", "title", "module", "dtype", "warning", "error"]
"""The role of a piece of text; `_render` decides how it looks."""

Span = tuple[str, Style]
Line = list[Span]

_GAP = 2
"""Spaces between columns."""

_MAX_CELLS = 100
"""Widest text, in terminal cells, that widens its column; a longer one only shifts the rest of its row."""

_MIN_CELLS = 20
"""Fewest terminal cells of the first column, however narrow the terminal is."""

_DOTS = "…"
"""Replaces the middle of a text that is too long."""


class Column(msgspec.Struct, frozen=True):
    """The heading and the alignment of a column."""

    heading: str
    align: Literal["left", "right"] = "left"


def columns(
    layout: Sequence[Column], rows: Sequence[Sequence[Line]], *, headings: bool = True, width: int | None = None
) -> Iterator[Line]:
    """Lay out rows in columns that are as wide as their texts."""
    if headings:
        rows = [[[(column.heading, "heading")] for column in layout], *rows]
    if width is not None:
        rows = _fitted(rows, width)
    cell_widths = [[_width(cell) for cell in row] for row in rows]
    widths = [_column_width(column) for column in zip(*cell_widths, strict=True)]
    right = [column.align == "right" for column in layout]
    for row, row_widths in zip(rows, cell_widths, strict=True):
        line: Line = []
        pending = 0  # spaces that are written only if text follows
        for cell, is_right, column_width, cell_width in zip(row, right, widths, row_widths, strict=True):
            padding = max(column_width - cell_width, 0)
            if is_right:
                pending += padding
            if cell_width:
                if pending:
                    line.append((" " * pending, ""))
                line.extend(cell)
                pending = 0
            pending += _GAP if is_right else padding + _GAP
        yield line


def _fitted(rows: Sequence[Sequence[Line]], width: int) -> list[list[Line]]:
    """Clip the first cell of each row to the space that the other columns leave."""
    n_cells = room_for_first([rest for _, *rest in rows], width)
    return [[_clipped(first, n_cells), *rest] for first, *rest in rows]


def room_for_first(rows: Sequence[Sequence[Line]], width: int) -> int:
    """Return the cells that other columns leave for the first one."""
    others = [_column_width(map(_width, column)) for column in zip(*rows, strict=True)]
    return max(width - sum(others) - _GAP * len(others), _MIN_CELLS)


def _clipped(line: Line, n_cells: int) -> Line:
    """Cut the middle out of the longest text of a line that is wider than `n_cells`."""
    excess = _width(line) - n_cells
    if excess <= 0:
        return line
    longest = max(range(len(line)), key=lambda place: _width(line[place : place + 1]))
    text, style = line[longest]
    return [*line[:longest], (clipped(text, cells(text) - excess), style), *line[longest + 1 :]]


def clipped(text: str, n_cells: int) -> str:
    """Cut the middle out of a text that is wider than `n_cells`, but never both ends."""
    if cells(text) <= n_cells:
        return text
    n_kept = max(n_cells - len(_DOTS), 2)
    head = _beginning(text, n_kept - n_kept // 2)
    tail = _beginning(text[::-1], n_kept // 2)[::-1]
    return head + _DOTS + tail


def _beginning(text: str, n_cells: int) -> str:
    width = 0
    for place, char in enumerate(text):
        width += cell_len(char)
        if width > n_cells:
            return text[:place]
    return text


def _column_width(cell_widths: Iterable[int]) -> int:
    return max((width for width in cell_widths if width <= _MAX_CELLS), default=0)


def cells(text: str) -> int:
    """Return how many cells of a terminal a text takes."""
    return len(text) if text.isascii() else cell_len(text)


def _width(line: Line) -> int:
    return sum(cells(text) for text, _ in line)

"""Lines of styled text, and columns of them. Pure.

Columns are laid out here because rich's tables wrap and measure each cell: 0.4 ms a row, which is 40 s for a file of
100,000 tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from rich.cells import cell_len

__all__ = ["Column", "Line", "Span", "Style", "columns"]

Style = Literal["", "dim", "heading", "title", "module", "dtype", "warning", "error"]
"""What a piece of text is; `_render` says how that looks."""

Span = tuple[str, Style]
Line = list[Span]

_GAP = "  "
_MAX_CELLS = 100
"""Terminal cells up to which one long text widens its column; a longer one moves only the rest of its own row."""


class Column(msgspec.Struct, frozen=True):
    """One column.

    Attributes:
        heading: What stands above it.
        align: Where its texts stand.
    """

    heading: str
    align: Literal["left", "right"] = "left"


def columns(layout: Sequence[Column], rows: Sequence[Sequence[Line]], *, headings: bool = True) -> Iterable[Line]:
    """Lay out rows in columns, as wide as what stands in them.

    Args:
        layout: The columns.
        rows: For each row a cell per column; each cell is a line without a line end.
        headings: Whether the first line names the columns.

    Yields:
        One line per row; no text is cut and no line ends in spaces.
    """
    if headings:
        rows = [[[(column.heading, "heading")] for column in layout], *rows]
    widths = [_column_width(place, rows) for place in range(len(layout))]
    for row in rows:
        line: Line = []
        pending = 0
        for column, width, cell in zip(layout, widths, row, strict=True):
            padding = max(0, width - _width(cell))
            before = pending + (padding if column.align == "right" else 0)
            if before and cell:
                line.append((" " * before, ""))
                before = 0
            line.extend(cell)
            pending = before + len(_GAP) + (padding if column.align == "left" else 0)
        yield line


def _column_width(place: int, rows: Sequence[Sequence[Line]]) -> int:
    widths = (_width(row[place]) for row in rows)
    return max((width for width in widths if width <= _MAX_CELLS), default=0)


def _width(line: Line) -> int:
    return sum(len(text) if text.isascii() else cell_len(text) for text, _ in line)

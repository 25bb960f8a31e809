"""Tables of bounded length, folded and open. Pure.

Text inherits the color of the notebook, and lines are half transparent, so light and dark both work. Nothing here
needs a script or a style sheet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from tensorkeep.markup._elements import Markup, element, joined

MAX_ROWS: Final = 100
"""Rows of a table; a checkpoint may have 100,000 tensors, and a page that a notebook keeps must stay small."""

_CELL: Final = "text-align:left;padding:1px 12px 1px 0;vertical-align:top;overflow-wrap:anywhere"
_NUMBER: Final = "text-align:right;padding:1px 12px 1px 0;vertical-align:top;font-variant-numeric:tabular-nums"
_HEADING: Final = ";font-weight:600;border-bottom:1px solid rgba(128,128,128,.5)"


def page(title: str, facts: Iterable[str], *parts: str) -> Markup:
    """Return a page: a title, facts in a line, and parts below each other."""
    line = " · ".join(filter(None, facts))
    head = element("div", element("strong", title), element("span", f"  {line}", style="opacity:.75"))
    return element("div", head, *parts, class_="tensorkeep", style="font-size:13px;line-height:1.45;max-width:100%")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], n_rows: int, numbers: Sequence[int] = ()) -> Markup:
    """Return a table of the first rows, which says how many follow; `numbers` are columns aligned to the right."""
    styles = [_NUMBER if place in numbers else _CELL for place in range(len(headings))]
    head = [element("th", text, style=style + _HEADING) for text, style in zip(headings, styles, strict=True)]
    body = [
        element("tr", *(element("td", cell, style=style) for cell, style in zip(row, styles, strict=True)))
        for row in islice(rows, MAX_ROWS)
    ]
    if n_rows > len(body):
        rest = element("td", f"… and {n_rows - len(body):,} more", colspan=len(headings), style="opacity:.75")
        body.append(element("tr", rest))
    style = "border-collapse:collapse;margin:2px 0;font-size:inherit;color:inherit"
    return element("table", element("thead", element("tr", *head)), element("tbody", *body), style=style)


def folded(summary: str, *parts: str, is_open: bool = False) -> Markup:
    """Return parts that a click on the summary shows."""
    content = joined((element("summary", summary, style="cursor:pointer"), *parts))
    return Markup(f"<details{' open' if is_open else ''}>{content}</details>")

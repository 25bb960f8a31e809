"""A page of help as lines of a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import Final

from tensorkeep.cli.help._pages import HelpPage, Section
from tensorkeep.cli.terminal import Line

_MAX_WIDTH: Final = 100
"""Longer lines are hard to read."""

_MAX_TERM: Final = 28
"""A longer term has its text below it."""

_INDENT: Final = "  "


def help_lines(page: HelpPage, width: int) -> Iterator[Line]:
    """Lay out a page for a terminal of `width` characters."""
    width = max(min(width, _MAX_WIDTH), 40)
    yield [("Usage: ", "dim"), (page.usage, "title")]
    yield []
    for paragraph in (page.summary, *page.paragraphs):
        for text in paragraph.split("\n"):
            is_kept = "\n" in paragraph or text.startswith(" ")
            yield from _plain([text] if is_kept else wrap(text, width - len(_INDENT)), _INDENT)
        yield []
    longest = min(_MAX_TERM, width * 2 // 5)
    n_chars = max(len(row.term) for section in page.sections for row in section.rows if len(row.term) <= longest)
    for place, section in enumerate(page.sections):
        yield from [[]] if place else []
        yield from _section(section, n_chars, width)


def _section(section: Section, n_chars: int, width: int) -> Iterator[Line]:
    yield [(f"{section.title}:", "title")]
    start = len(_INDENT) + n_chars + 2
    for term, text in section.rows:
        first, *rest = wrap(text, width - start) or [""]
        if len(term) > n_chars:
            yield [(_INDENT + term, "module")]
            yield [(" " * start + first, "")]
        else:
            yield [(_INDENT + term, "module"), (" " * (start - len(_INDENT) - len(term)) + first, "")]
        yield from _plain(rest, " " * start)


def _plain(texts: list[str], indent: str) -> Iterator[Line]:
    for text in texts:
        yield [(indent + text, "")]

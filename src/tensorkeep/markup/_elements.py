"""HTML, in which everything but markup is escaped. Pure."""

from __future__ import annotations

from html import escape
from typing import Final

from tensorkeep.texts import printable, shortened

_MAX_CHARS: Final = 300
"""Characters shown of a text; names from files may be as long as a header."""


class Markup(str):
    """HTML that `element` made; any other text is escaped."""

    __slots__ = ()


def element(tag: str, *children: str, **attributes: str | float) -> Markup:
    """Return an element; underscores in the names of attributes become hyphens, and `class_` is `class`."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value))}"' for name, value in attributes.items()
    )
    return Markup(f"<{tag}{written}>{joined(children)}</{tag}>")


def drawing(width: float, height: float, *children: str) -> Markup:
    """Return an SVG of a size in pixels, which shrinks where there is less room."""
    size = {"viewBox": f"0 0 {width:g} {height:g}", "width": f"{width:g}", "height": f"{height:g}"}
    return element("svg", *children, **size, role="img", style="max-width:100%;height:auto")


def joined(children: tuple[str, ...]) -> Markup:
    """Join markup and texts; control and direction characters in texts are shown as escapes."""
    return Markup("".join(child if isinstance(child, Markup) else _escaped(child) for child in children))


def _escaped(text: str) -> str:
    return escape(printable(shortened(text, _MAX_CHARS)))

"""The sizes of modules as a map: each rectangle is a module or a tensor, its area the bytes. Pure.

Names are divided at dots and slashes. The largest module is opened again and again, until there are enough parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from tensorkeep.markup import Markup, drawing, element
from tensorkeep.pictures._squares import Box, divided
from tensorkeep.texts import counted, size_text

_WIDTH: Final = 720
_HEIGHT: Final = 300
_N_PARTS: Final = 30
_N_CHILDREN: Final = 16
"""Parts of one module; if it has more, neighbors are together."""

_COLORS: Final = ("#0e7490", "#b45309", "#6d28d9", "#15803d", "#be185d", "#1d4ed8", "#a16207", "#475569")
"""Of modules at the top, dark enough for white text."""

_TEXT: Final[dict[str, str | float]] = {
    "fill": "#ffffff",
    "font_size": 11,
    "font_family": "sans-serif",
    "pointer_events": "none",
}

_NARROW: Final = 6.4
"""Pixels of a character."""


class _Part(msgspec.Struct, frozen=True):
    """Tensors whose names begin alike."""

    names: tuple[str, ...]
    label: str
    depth: int
    nbytes: int
    color: str = _COLORS[0]


def treemap_svg(sizes: Mapping[str, int]) -> Markup:
    """Draw the sizes of tensors in bytes, by name."""
    parts = sorted(_parts({name: nbytes for name, nbytes in sizes.items() if nbytes}), key=lambda part: -part.nbytes)
    boxes = divided([part.nbytes for part in parts], Box(0, 0, _WIDTH, _HEIGHT))
    drawn = [_drawn(part, box) for part, box in zip(parts, boxes, strict=True)]
    return drawing(_WIDTH, _HEIGHT, *drawn)


def _parts(sizes: Mapping[str, int]) -> list[_Part]:
    whole = _Part(tuple(sizes), "", 0, sum(sizes.values()))
    tops = sorted(_children(whole, sizes), key=lambda part: -part.nbytes)
    parts = [msgspec.structs.replace(part, color=_COLORS[place % len(_COLORS)]) for place, part in enumerate(tops)]
    closed: list[_Part] = []
    while parts and len(parts) + len(closed) < _N_PARTS:
        largest = max(parts, key=lambda part: part.nbytes)
        parts.remove(largest)
        if len(largest.names) == 1:
            closed.append(largest)
        else:
            parts += _children(largest, sizes)
    return closed + parts


def _children(part: _Part, sizes: Mapping[str, int]) -> Iterator[_Part]:
    """Divide a module by the next piece of the names; many children become groups of neighbors."""
    children: dict[str, list[str]] = {}
    for name in part.names:
        pieces = name.replace("/", ".").split(".", part.depth + 1)
        children.setdefault(".".join(pieces[: part.depth + 1]), []).append(name)
    n_together = -(-len(children) // _N_CHILDREN) or 1
    for together in _batches(list(children.items()), n_together):
        names = tuple(name for _, names in together for name in names)
        (first, _), (last, _) = together[0], together[-1]
        is_one = first == last
        label, depth = (first, part.depth + 1) if is_one else (f"{first} … {last.rpartition('.')[2]}", part.depth)
        yield _Part(names, label, depth, sum(sizes[name] for name in names), part.color)


def _batches(children: list[tuple[str, list[str]]], n: int) -> Iterator[list[tuple[str, list[str]]]]:
    return (children[start : start + n] for start in range(0, len(children), n))


def _drawn(part: _Part, box: Box) -> Markup:
    size = f"{size_text(part.nbytes)}, {counted(len(part.names), 'tensor')}"
    shape = {"x": f"{box.x:.1f}", "y": f"{box.y:.1f}", "width": f"{box.width:.1f}", "height": f"{box.height:.1f}"}
    tip = element("title", f"{part.label}: {size}")
    area = element("rect", tip, **shape, fill=part.color, stroke="#ffffff", stroke_opacity=0.6)
    n_chars = int((box.width - 8) / _NARROW)
    if n_chars < 4 or box.height < 16:
        return area
    label = part.label if len(part.label) <= n_chars else "…" + part.label[1 - n_chars :]
    lines = [label, size_text(part.nbytes)] if box.height >= 32 else [label]
    texts = [
        element("text", line, x=f"{box.x + 4:.1f}", y=f"{box.y + 13 + 13 * place:.1f}", **_TEXT)
        for place, line in enumerate(lines)
    ]
    return element("g", area, *texts)

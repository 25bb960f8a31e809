"""A rectangle divided into rectangles of given areas that are nearly square. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Box(NamedTuple):
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float


def divided(sizes: Sequence[float], box: Box) -> Iterator[Box]:
    """Give a part of the box for each size; sizes are positive, the largest first.

    Rows are laid along the shorter side, and a row ends where one more part would make its worst part longer.
    """
    total = sum(sizes)
    scale = box.width * box.height / total if total else 0
    areas = [size * scale for size in sizes]
    start = 0
    while start < len(areas):
        side = min(box.width, box.height)
        stop = start + 1
        row = areas[start]
        worst = _worst(areas[start], areas[start], row, side)
        while stop < len(areas):
            new = _worst(areas[start], areas[stop], row + areas[stop], side)
            if new > worst:
                break
            worst, row, stop = new, row + areas[stop], stop + 1
        yield from _row(areas[start:stop], row, box)
        thickness = row / side if side else 0
        if box.width >= box.height:
            box = Box(box.x + thickness, box.y, max(box.width - thickness, 0), box.height)
        else:
            box = Box(box.x, box.y + thickness, box.width, max(box.height - thickness, 0))
        start = stop


def _worst(largest: float, smallest: float, row: float, side: float) -> float:
    """Return the ratio of the sides of the longest part of a row."""
    if not side or not smallest or not row:
        return float("inf")
    return max(side * side * largest / (row * row), row * row / (side * side * smallest))


def _row(areas: Sequence[float], row: float, box: Box) -> Iterator[Box]:
    is_wide = box.width >= box.height
    side = min(box.width, box.height)
    thickness = row / side if side else 0
    at = box.y if is_wide else box.x
    for area in areas:
        length = area / thickness if thickness else 0
        yield Box(box.x, at, thickness, length) if is_wide else Box(at, box.y, length, thickness)
        at += length

"""Tensors that share bytes in their sources: identical ones and overlapping ones."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable

import msgspec

from tensorkeep.arrays import Extent
from tensorkeep.kinds import StoredView
from tensorkeep.tensors import overlapping


class Ties(msgspec.Struct, frozen=True):
    """Which tensors share bytes.

    Attributes:
        aliases: Name to the first name of the same tensor.
        overlapped: Groups of names whose tensors overlap without being the same.
    """

    aliases: dict[str, str]
    overlapped: tuple[tuple[str, ...], ...]


def ties_of(places: Iterable[tuple[str, StoredView | None]], taken: Container[str]) -> Ties:
    """Find tensors to store only once, and overlapping ones that must be stored separately."""
    aliases: dict[str, str] = {}
    firsts: dict[Hashable, str] = {}
    extents: dict[str, Extent | None] = {}
    for name, view in places:
        if view is None:
            continue
        first = firsts.setdefault(view.identity, name)
        if first == name or name in taken:
            extents[name] = view.extent
        else:
            aliases[name] = first
    return Ties(aliases, tuple(tuple(group) for group in overlapping(extents)))

"""Which tensors share memory. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tensorkeep.arrays import Extent

__all__ = ["overlapping"]


def overlapping(extents: Mapping[str, Extent | None]) -> list[list[str]]:
    """Group names whose memory overlaps, directly or through others.

    A group reaches as far as its longest member, so a small view never hides that a later tensor overlaps a large
    one (the reference compares with the last member only).

    Args:
        extents: Name to place in memory; None for tensors that have none.

    Returns:
        Groups of two or more names, each sorted by address and then name.
    """
    placed = sorted(
        ((extent.device, extent.start, extent.stop, name) for name, extent in extents.items() if extent),
    )
    groups: list[list[str]] = []
    group: list[str] = []
    device, end = "", -1
    for place, start, stop, name in placed:
        if place == device and start < end:
            group.append(name)
            end = max(end, stop)
        else:
            groups.append(group)
            group = [name]
            device, end = place, stop
    groups.append(group)
    return [group for group in groups if len(group) > 1]

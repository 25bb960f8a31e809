"""Which tensors share memory. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from tensorkeep.arrays import Extent

_MAX_COMPARED: Final = 64
"""Tensors in one range of memory that are compared pair by pair; more count as one group."""

_MAX_WORK: Final = 10_000
"""Steps to find out whether two tensors have an element in common; if it takes more, they count as if they had."""


class Elements(msgspec.Struct, frozen=True):
    """Where the elements of a tensor are in memory.

    Attributes:
        start: Address of the first byte.
        stop: One past the last.
        itemsize: Bytes of an element.
        shape: Elements along each dimension.
        strides: For each dimension, elements from one entry to the next, none negative; None if unknown.
    """

    start: int
    stop: int
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None

    @property
    def __array_interface__(self) -> dict[str, Any]:
        strides = tuple(self.itemsize * stride for stride in self.strides or ())
        data = (_FIRST_ADDRESS + self.start, True)
        return {"version": 3, "typestr": f"|V{self.itemsize}", "shape": self.shape, "strides": strides, "data": data}


_FIRST_ADDRESS: Final = 2**12
"""Added to all addresses, since NumPy takes no array at address 0."""


def crowded(starts: Sequence[int], stops: Sequence[int]) -> list[int]:
    """Return the positions of ranges that overlap another: one sort of many tensors, most of which do not."""
    if not starts:
        return []
    places = np.array(starts, np.uint64)
    order = np.argsort(places, kind="stable")
    begins = places[order]
    reach = np.maximum.accumulate(np.array(stops, np.uint64)[order])
    group = np.cumsum(np.concatenate(([False], begins[1:] >= reach[:-1])))
    positions: list[int] = order[np.bincount(group)[group] > 1].tolist()
    return positions


def overlapping(extents: Mapping[str, Extent | None]) -> list[list[str]]:
    """Group names whose memory overlaps, directly or through others.

    A group reaches as far as its longest member, so a small view cannot hide that a later tensor overlaps a large
    one. (The reference compares with the last member only.)
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


def with_common_elements(tensors: Mapping[str, Elements]) -> Iterator[list[str]]:
    """Group names whose tensors have elements in common, directly or through others.

    Two columns of a matrix are in one range of memory, but share nothing.
    """
    by_place: dict[Elements, list[str]] = {}
    for name, elements in tensors.items():
        by_place.setdefault(elements, []).append(name)
    places = list(by_place)
    if len(places) > _MAX_COMPARED:
        yield list(tensors)
        return
    group_of = list(range(len(places)))
    for first in range(len(places)):
        for second in range(first):
            if group_of[first] != group_of[second] and _have_common(places[first], places[second]):
                old, new = group_of[first], group_of[second]
                group_of = [new if group == old else group for group in group_of]
    for group in dict.fromkeys(group_of):
        names = [name for place, of in zip(places, group_of, strict=True) if of == group for name in by_place[place]]
        if len(names) > 1:
            yield names


def _have_common(first: Elements, second: Elements) -> bool:
    if first.stop <= second.start or second.stop <= first.start:
        return False
    if first.strides is None or second.strides is None:
        return True
    try:
        work: Any = _MAX_WORK  # NumPy's stubs know -1 and 0 only
        return np.shares_memory(np.asarray(first), np.asarray(second), max_work=work)
    except np.exceptions.TooHardError:
        return True

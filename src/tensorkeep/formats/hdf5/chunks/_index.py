"""Which chunks of a dataset are stored, and where, by any of the six kinds of index. Pure."""

from __future__ import annotations

import struct
from math import prod
from operator import floordiv, lt, mod

import msgspec

from tensorkeep.errors import FormatError
from tensorkeep.formats.hdf5._layout import (
    EXTENSIBLE_ARRAY,
    FIXED_ARRAY,
    IMPLICIT,
    OLD_TREE,
    SINGLE,
    Chunked,
)
from tensorkeep.formats.hdf5.chunks._arrays import Entry, read_extensible_array, read_fixed_array
from tensorkeep.formats.hdf5.structures import CHUNKS, Dialect, Fields, Parsing, read_btree_v1, read_btree_v2

_PLAIN_RECORDS = 10
_FILTERED_RECORDS = 11


class Grid(msgspec.Struct, frozen=True):
    """The chunks side by side.

    Attributes:
        extents: Chunks along each dimension now.
        most: Chunks along each dimension when it is as long as it may become; None without a bound.
    """

    extents: tuple[int, ...]
    most: tuple[int | None, ...]


def read_index(dialect: Dialect, layout: Chunked, grid: Grid, nbytes: int) -> Parsing[dict[tuple[int, ...], Entry]]:
    """Return the chunks of `nbytes` that are stored and in the grid, by their place along each dimension."""
    if layout.address is None:
        return {}
    if layout.index == OLD_TREE:
        entries = yield from _read_old_tree(dialect, layout, layout.address)
    elif layout.index == SINGLE:
        place = (0,) * len(layout.shape)
        entries = [Entry(place, layout.address, *(layout.single or ()))]
    elif layout.index == IMPLICIT:
        n_chunks = prod(_bounded(grid.most))
        dialect.span(layout.address, n_chunks * nbytes)
        entries = [Entry(number, layout.address + number * nbytes) for number in range(n_chunks)]
    elif layout.index == FIXED_ARRAY:
        entries = yield from read_fixed_array(dialect, layout.address)
    elif layout.index == EXTENSIBLE_ARRAY:
        entries = yield from read_extensible_array(dialect, layout.address)
    else:
        entries = yield from _read_tree(dialect, layout, layout.address)
    is_extensible = layout.index == EXTENSIBLE_ARRAY
    places = _Numbers(grid, is_extensible)
    found: dict[tuple[int, ...], Entry] = {}
    for entry in entries:
        place = entry.place if isinstance(entry.place, tuple) else places.place_of(entry.place)
        if all(map(lt, place, grid.extents)):
            if place in found:
                raise FormatError("a chunk is in its index twice", found=f"chunk {place}")
            found[place] = entry
    return found


class _Numbers:
    """Turns the number of a chunk into its place along each dimension.

    Numbers count in C order; in an extensible array, the dimension that has no bound varies slowest.
    """

    def __init__(self, grid: Grid, is_extensible: bool) -> None:
        self._order = list(range(len(grid.most)))
        if is_extensible:
            free = next((axis for axis, most in enumerate(grid.most) if most is None), 0)
            self._order.insert(0, self._order.pop(free))
        self._extents = [grid.most[axis] for axis in self._order]

    def place_of(self, number: int) -> tuple[int, ...]:
        place = [0] * len(self._order)
        for axis, extent in zip(reversed(self._order[1:]), reversed(_bounded(self._extents[1:])), strict=True):
            number, place[axis] = divmod(number, extent)
        if place:
            place[self._order[0]] = number
        return tuple(place)


def _bounded(extents: tuple[int | None, ...] | list[int | None]) -> list[int]:
    if None in extents or 0 in extents:
        raise FormatError("an index of chunks is of a kind that a dataset of this shape cannot have")
    return [extent for extent in extents if extent is not None]


def _read_old_tree(dialect: Dialect, layout: Chunked, address: int) -> Parsing[list[Entry]]:
    ndim = len(layout.shape)
    key = struct.Struct(f"<II{ndim + 1}Q")
    entries: list[Entry] = []
    for data, at in (yield from read_btree_v1(dialect, address, CHUNKS, key.size)):
        nbytes, left_out, *starts = key.unpack(data)
        if any(map(mod, starts, layout.shape)) or starts[-1]:
            raise FormatError("a chunk begins between two chunks", found=f"at {starts}")
        entries.append(Entry(tuple(map(floordiv, starts, layout.shape)), at, nbytes, left_out))
    return entries


def _read_tree(dialect: Dialect, layout: Chunked, address: int) -> Parsing[list[Entry]]:
    tree = yield from read_btree_v2(dialect, address)
    ndim = len(layout.shape)
    is_filtered = tree.kind == _FILTERED_RECORDS
    if tree.kind not in {_PLAIN_RECORDS, _FILTERED_RECORDS}:
        raise FormatError("an index of chunks is a B-tree of another type", found=f"type {tree.kind}")
    entries: list[Entry] = []
    for record in tree.records:
        fields = Fields(record)
        at = dialect.address(fields)
        nbytes_nbytes = len(record) - dialect.address_nbytes - 8 * ndim - 4
        nbytes = fields.uint(nbytes_nbytes) if is_filtered and nbytes_nbytes > 0 else None
        left_out = fields.uint(4) if is_filtered else 0
        place = struct.unpack(f"<{ndim}Q", fields.take(8 * ndim))
        if at is not None:
            entries.append(Entry(place, at, nbytes, left_out))
    return entries

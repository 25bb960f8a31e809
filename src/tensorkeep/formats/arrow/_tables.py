"""Tables of FlatBuffers, many at a time: a schema has several for each of its columns. Pure.

What holds for one `Table` holds for each of these: every place is checked before it is read.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tensorkeep.errors import LimitError
from tensorkeep.formats.arrow._flatbuffers import Buffer, Table, outside

Places = npt.NDArray[np.int64]

_ABSENT: Final = -1
_VTABLE_NBYTES: Final = 4
_ENTRIES: Final = _VTABLE_NBYTES + 2 * np.arange(7)[:, None]
"""Where a vtable has the offsets of the fields; the tables of a schema have no more than these."""


class Tables:
    """Tables at some places of one buffer, with their fields by number."""

    def __init__(self, buffer: Buffer, places: Places) -> None:
        self.buffer = buffer
        self.places = places
        vtables = places - self._read(places, "<i4")
        nbytes = self._read(vtables, "<u2")
        if len(places) and nbytes.min() < _VTABLE_NBYTES:
            raise outside(int(vtables.min()), buffer.data)
        is_listed = nbytes >= _ENTRIES + 2
        offsets = self._read(vtables + np.where(is_listed, _ENTRIES, 0), "<u2")
        self._fields = np.where(is_listed & (offsets > 0), places + offsets, _ABSENT)

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, place: int) -> Table:
        return Table(self.buffer, int(self.places[place]))

    def among(self, numbers: Places) -> Tables:
        """Return some of the tables."""
        return Tables(self.buffer, self.places[numbers])

    def _read(self, places: Places, dtype: str) -> Places:
        """Return the numbers at some places of the buffer."""
        data, kind = self.buffer.data, np.dtype(dtype)
        n_places = max(len(data) - kind.itemsize + 1, 0)
        if places.size and np.maximum.reduce(places.view(np.uint64), axis=None) >= n_places:  # negative ones are huge
            raise outside(int(places.max()) + kind.itemsize, data)
        numbers: Places = np.ndarray(n_places, kind, data, strides=1)[places].astype(np.int64)
        return numbers

    def numbers(self, field: int, dtype: str, default: int = 0) -> Places:
        """Return a number of each table."""
        places = self._fields[field]
        is_there = places != _ABSENT
        return np.where(is_there, self._read(np.where(is_there, places, 0), dtype), default)

    def _targets(self, field: int) -> Places:
        """Return what a field of each table points to; -1 where it is not there."""
        places = self._fields[field]
        is_there = places != _ABSENT
        return np.where(is_there, places + self._read(np.where(is_there, places, 0), "<u4"), _ABSENT)

    def has(self, field: int) -> npt.NDArray[np.bool_]:
        """Say which tables have a field."""
        there: npt.NDArray[np.bool_] = self._fields[field] != _ABSENT
        return there

    def table(self, field: int) -> Tables:
        """Return the nested table of each table, all of which must have it."""
        return Tables(self.buffer, self._targets(field))

    def texts(self, field: int) -> list[str]:
        """Return a text of each table; bytes that are not UTF-8 become escapes."""
        starts, lengths = self._vectors(field, 1)
        data = self.buffer.data
        return [
            data[start : start + length].decode("utf-8", "backslashreplace")
            for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
        ]

    def tables(self, field: int, most: int | None = None) -> tuple[Tables, list[int]]:
        """Return the tables of a vector of each table, one after another, and how many each has."""
        starts, counts = self._vectors(field, 4)
        if most is not None and counts.sum() > most:
            raise LimitError("a description has more parts than its bytes can describe", expected=f"at most {most:,}")
        n_before = np.cumsum(counts) - counts
        entries = np.repeat(starts - 4 * n_before, counts) + 4 * np.arange(int(counts.sum()))
        return Tables(self.buffer, entries + self._read(entries, "<u4")), counts.tolist()

    def _vectors(self, field: int, size: int) -> tuple[Places, Places]:
        """Return where the elements of a vector of each table begin, and how many there are."""
        targets = self._targets(field)
        is_there = targets != _ABSENT
        counts = np.where(is_there, self._read(np.where(is_there, targets, 0), "<u4"), 0)
        starts = targets + 4
        stops = starts + size * counts
        if len(stops) and stops.max() > len(self.buffer.data):
            raise outside(int(stops.max()), self.buffer.data)
        self.buffer.spend(size * int(counts.sum()))
        return starts, counts


def join_tables(parts: list[Tables]) -> Tables:
    """Return all of some tables of one buffer, one after another."""
    if len(parts) == 1:
        return parts[0]
    return Tables(parts[0].buffer, np.concatenate([part.places for part in parts]))


def tables_of(table: Table, field: int, most: int) -> Tables:
    """Return the tables of a vector of one table, at most so many."""
    return Tables(table.buffer, np.array([table.place])).tables(field, most)[0]

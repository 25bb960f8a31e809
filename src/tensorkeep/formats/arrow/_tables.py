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
_FIELD_NBYTES: Final = 2
_VTABLE_NBYTES: Final = 4


class Tables:
    """Tables at some places of one buffer, with their fields by number."""

    def __init__(self, buffer: Buffer, places: Places) -> None:
        self._buffer = buffer
        self._data = np.frombuffer(buffer.data, np.uint8)
        self._places = places
        self._vtables = places - self._read(places, "<i4")
        self._vtable_nbytes = self._read(self._vtables, "<u2")
        if len(places) and self._vtable_nbytes.min() < _VTABLE_NBYTES:
            raise outside(int(self._vtables.min()), buffer.data)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, place: int) -> Table:
        return Table(self._buffer, int(self._places[place]))

    def among(self, numbers: Places) -> Tables:
        """Return some of the tables."""
        return Tables(self._buffer, self._places[numbers])

    def _read(self, places: Places, dtype: str) -> Places:
        """Return the numbers at some places of the buffer."""
        size = np.dtype(dtype).itemsize
        if len(places) and not 0 <= places.min() <= places.max() <= len(self._data) - size:
            raise outside(int(places.max()) + size, self._buffer.data)
        found = self._data[places[:, None] + np.arange(size)].view(dtype)
        numbers: Places = found[:, 0].astype(np.int64)
        return numbers

    def _find(self, field: int) -> Places:
        """Return where a field of each table is; -1 where it has its default."""
        entry = _VTABLE_NBYTES + _FIELD_NBYTES * field
        found = np.full(len(self), _ABSENT)
        has_entry = np.flatnonzero(self._vtable_nbytes >= entry + _FIELD_NBYTES)
        offsets = self._read(self._vtables[has_entry] + entry, "<u2")
        found[has_entry] = np.where(offsets > 0, self._places[has_entry] + offsets, _ABSENT)
        return found

    def numbers(self, field: int, dtype: str, default: int = 0) -> Places:
        """Return a number of each table."""
        places = self._find(field)
        found = np.full(len(self), default)
        there = np.flatnonzero(places != _ABSENT)
        found[there] = self._read(places[there], dtype)
        return found

    def _targets(self, field: int) -> Places:
        """Return what a field of each table points to; -1 where it is not there."""
        places = self._find(field)
        there = np.flatnonzero(places != _ABSENT)
        places[there] += self._read(places[there], "<u4")
        return places

    def has(self, field: int) -> npt.NDArray[np.bool_]:
        """Say which tables have a field."""
        there: npt.NDArray[np.bool_] = self._find(field) != _ABSENT
        return there

    def table(self, field: int) -> Tables:
        """Return the nested table of each table, all of which must have it."""
        return Tables(self._buffer, self._targets(field))

    def texts(self, field: int) -> list[str]:
        """Return a text of each table; bytes that are not UTF-8 become escapes."""
        starts, lengths = self._vectors(field, 1)
        data = self._buffer.data
        return [
            str(data[start : start + length], "utf-8", "backslashreplace")
            for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
        ]

    def tables(self, field: int, most: int | None = None) -> tuple[Tables, list[int]]:
        """Return the tables of a vector of each table, one after another, and how many each has."""
        starts, counts = self._vectors(field, 4)
        if most is not None and counts.sum() > most:
            raise LimitError("a description has more parts than its bytes can describe", expected=f"at most {most:,}")
        n_before = np.cumsum(counts) - counts
        entries = np.repeat(starts - 4 * n_before, counts) + 4 * np.arange(int(counts.sum()))
        return Tables(self._buffer, entries + self._read(entries, "<u4")), counts.tolist()

    def _vectors(self, field: int, size: int) -> tuple[Places, Places]:
        """Return where the elements of a vector of each table begin, and how many there are."""
        starts = self._targets(field)
        counts = np.zeros(len(self), np.int64)
        there = np.flatnonzero(starts != _ABSENT)
        counts[there] = self._read(starts[there], "<u4")
        starts[there] += 4
        stops = starts + size * counts
        if len(stops) and stops.max() > len(self._data):
            raise outside(int(stops.max()), self._buffer.data)
        self._buffer.spend(size * int(counts.sum()))
        return starts, counts


def tables_of(table: Table, field: int, most: int) -> Tables:
    """Return the tables of a vector of one table, at most so many."""
    return Tables(table.buffer, np.array([table.place])).tables(field, most)[0]

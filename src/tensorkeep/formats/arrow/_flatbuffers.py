"""Tables of FlatBuffers, read in place: every offset is checked before it is followed. Pure.

Offsets to vectors, texts and tables point forward, so nothing contains itself. But the same bytes may be in many
places, so what is read of a buffer in all is limited to a few times its size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.errors import FormatError, LimitError

_NUMBERS: Final = {code: struct.Struct(f"<{code}").unpack_from for code in ("b", "B", "h", "H", "i", "I", "q")}
_U16, _I32, _U32 = _NUMBERS["H"], _NUMBERS["i"], _NUMBERS["I"]

_MAX_FIELDS: Final = 32
"""Fields of a table that are looked at; Arrow's tables have up to 8."""

_MAX_TIMES: Final = 4
_SPARE_NBYTES: Final = 2**12
"""How often the bytes of a buffer may be read as texts and vectors; honest ones are read once."""


class Buffer(msgspec.Struct, gc=False):
    """The bytes that tables are in, where fields are by place of that list, and the bytes that may still be read."""

    data: bytes
    fields: dict[int, tuple[int, ...]]
    n_left: int

    def spend(self, nbytes: int) -> None:
        self.n_left -= nbytes
        if self.n_left < 0:
            raise LimitError(
                "a description repeats itself too often",
                expected=f"at most {_MAX_TIMES} times its {len(self.data):,} bytes",
            )


class Table:
    """One table in some bytes, with its fields by number.

    A number beyond the end raises `struct.error`, which `checked_offsets` translates.

    Attributes:
        buffer: The bytes.
        place: Where it is in these.
    """

    __slots__ = ("_data", "_offsets", "buffer", "place")

    def __init__(self, buffer: Buffer, place: int) -> None:
        self.buffer = buffer
        self._data = buffer.data
        self.place = place
        vtable = place - _I32(buffer.data, place)[0]
        offsets = buffer.fields.get(vtable)
        self._offsets = _offsets_at(vtable, buffer) if offsets is None else offsets

    @classmethod
    def root(cls, data: bytes) -> Table:
        """Return the table that the bytes are a buffer of."""
        return cls(Buffer(data, {}, _MAX_TIMES * len(data) + _SPARE_NBYTES), _U32(data, 0)[0])

    def _find(self, field: int) -> int | None:
        """Return where a field is; None if it has its default."""
        offset = self._offsets[field] if field < len(self._offsets) else 0
        return self.place + offset if offset else None

    def number(self, field: int, code: str, default: int = 0) -> int:
        """Return a number of one of the formats of `struct`."""
        place = self._find(field)
        if place is None:
            return default
        value: int = _NUMBERS[code](self._data, place)[0]
        return value

    def struct(self, field: int, layout: str) -> tuple[int, ...]:
        """Return the numbers of a struct that is in the table itself; empty if it is not there."""
        place = self._find(field)
        if place is None:
            return ()
        return struct.unpack_from(layout, self._data, place)

    def _target(self, field: int) -> int | None:
        place = self._find(field)
        return None if place is None else place + _U32(self._data, place)[0]

    def table(self, field: int) -> Table | None:
        """Return a nested table; None if it is not there."""
        place = self._target(field)
        return None if place is None else Table(self.buffer, place)

    def text(self, field: int) -> str:
        """Return a text; bytes that are not UTF-8 become escapes."""
        offset = self._offsets[field] if field < len(self._offsets) else 0
        if not offset:
            return ""
        data, place = self._data, self.place + offset
        start = place + _U32(data, place)[0] + 4
        nbytes = _U32(data, start - 4)[0]
        if start + nbytes > len(data):
            raise outside(start + nbytes, data)
        self.buffer.spend(nbytes)
        return str(data[start : start + nbytes], "utf-8", "backslashreplace")

    def tables(self, field: int) -> Iterator[Table]:
        """Yield the tables of a vector."""
        offset = self._offsets[field] if field < len(self._offsets) else 0
        if offset:
            start, count = self._vector(field, 4)
            for place in range(start, start + 4 * count, 4):
                yield Table(self.buffer, place + _U32(self._data, place)[0])

    def structs(self, field: int, layout: str) -> list[tuple[int, ...]]:
        """Return the numbers of each struct in a vector, in a layout of `struct`."""
        size = struct.calcsize(layout)
        start, count = self._vector(field, size)
        return list(struct.iter_unpack(layout, self._data[start : start + size * count]))

    def pairs(self, field: int) -> npt.NDArray[np.int64]:
        """Return the numbers of a vector of structs with two numbers each, of 8 bytes: one row for each struct."""
        start, count = self._vector(field, 16)
        return np.frombuffer(self._data, "<i8", 2 * count, start).reshape(-1, 2)

    def _vector(self, field: int, size: int) -> tuple[int, int]:
        """Return where the elements of a vector begin, and how many there are."""
        place = self._target(field)
        if place is None:
            return 0, 0
        count = _U32(self._data, place)[0]
        if place + 4 + size * count > len(self._data):
            raise outside(place + 4 + size * count, self._data)
        self.buffer.spend(size * count)
        return place + 4, count


def _offsets_at(vtable: int, buffer: Buffer) -> tuple[int, ...]:
    """Read where the fields of tables are: many tables share one list of that."""
    nbytes = _U16(buffer.data, vtable)[0] if vtable >= 0 else 0
    if nbytes < 4:
        raise outside(vtable, buffer.data)
    n_fields = min(nbytes // 2 - 2, _MAX_FIELDS)
    offsets = buffer.fields[vtable] = struct.unpack_from(f"<{n_fields}H", buffer.data, vtable + 4)
    return offsets


@contextmanager
def checked_offsets() -> Iterator[None]:
    """Translate what a table raises if it points outside of its bytes."""
    try:
        yield
    except struct.error as error:
        raise FormatError("a description points outside of itself", found=str(error)) from None


def outside(place: int, data: bytes) -> FormatError:
    """Return the error for a place that is not in the data."""
    return FormatError(
        "a description points outside of itself", expected=f"at most {len(data):,} bytes", found=f"{place:,}"
    )

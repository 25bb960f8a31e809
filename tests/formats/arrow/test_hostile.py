"""Descriptions of Arrow files that are made to cost much: shared lists of fields, shared texts, shared vectors."""

from __future__ import annotations

import resource
import struct
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

import tensorkeep
from tensorkeep.errors import LimitError

MAX_SECONDS = 2.0
MAX_NBYTES = 200 * 2**20
WIDE = 0xFFFE


Write = Callable[["Buffer"], int]
"""Writes something to the end of a buffer, and returns where it is."""


class Buffer:
    """A buffer that is written from its root on, since offsets point forward."""

    def __init__(self, root: Write) -> None:
        self.data = bytearray(4)
        self.point(0, root(self))

    def put(self, data: bytes) -> int:
        self.data += data
        return len(self.data) - len(data)

    def point(self, place: int, target: int) -> None:
        struct.pack_into("<I", self.data, place, target - place)

    def file(self) -> bytes:
        return b"ARROW1\0\0" + bytes(self.data) + struct.pack("<I", len(self.data)) + b"ARROW1"


def table(*fields: Write | bytes | None) -> Write:
    """Return what writes a table of offsets and short numbers."""

    def write(buffer: Buffer) -> int:
        places = [4 + 4 * n if field is not None else 0 for n, field in enumerate(fields)]
        vtable = buffer.put(struct.pack(f"<{2 + len(places)}H", 4 + 2 * len(places), 4 + 4 * len(places), *places))
        start = buffer.put(struct.pack("<i", len(buffer.data) - vtable) + bytes(4 * len(places)))
        for place, field in zip(places, fields, strict=True):
            if isinstance(field, bytes):
                buffer.data[start + place : start + place + len(field)] = field
            elif field is not None:
                buffer.point(start + place, field(buffer))
        return start

    return write


def text(content: bytes) -> Write:
    return lambda buffer: buffer.put(struct.pack("<I", len(content)) + content)


def repeated(count: int, item: Write) -> Write:
    """Return what writes a vector of which all items are one and the same."""

    def write(buffer: Buffer) -> int:
        start = buffer.put(struct.pack("<I", count) + bytes(4 * count))
        target = item(buffer)
        for place in range(start + 4, start + 4 + 4 * count, 4):
            buffer.point(place, target)
        return start

    return write


def file_with(*, fields: Write, metadata: Write | None = None) -> bytes:
    return Buffer(table(b"\4\0", table(b"\0", fields, metadata))).file()


def wide_tables(n_tables: int = 8_000) -> bytes:
    """Metadata whose entries each have a list of 32,765 fields of their own."""

    def write(buffer: Buffer) -> int:
        start = buffer.put(struct.pack("<I", n_tables) + bytes(4 * n_tables))
        lists = buffer.put(struct.pack("<HH", WIDE, 0) * (n_tables + WIDE // 4 + 1))
        tables = buffer.put(struct.pack("<i", len(buffer.data) - lists) * n_tables)
        buffer.put(bytes(WIDE + 4 * n_tables))
        for n in range(n_tables):
            buffer.point(start + 4 + 4 * n, tables + 4 * n)
        return start

    return file_with(fields=repeated(0, text(b"")), metadata=write)


def shared_text(n_fields: int = 20_000, nbytes: int = 2**19) -> bytes:
    """Columns that all have the same long name, at the same place."""
    return file_with(fields=repeated(n_fields, table(text(b"a" * nbytes), None, b"\6", table())))


def shared_metadata(n_fields: int = 5_000, n_entries: int = 20_000) -> bytes:
    """Columns that all have the same metadata, at the same place."""
    metadata = repeated(n_entries, table(text(b""), text(b"")))
    return file_with(fields=repeated(n_fields, table(text(b""), None, b"\6", table(), None, None, metadata)))


@pytest.mark.parametrize("make", [wide_tables, shared_text, shared_metadata])
def test_what_is_in_many_places_is_not_read_many_times(make: Callable[[], bytes]) -> None:
    data = make()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.process_time()

    with suppress(LimitError):
        assert not len(tensorkeep.open(data))

    assert time.process_time() - begin < MAX_SECONDS
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MAX_NBYTES


def test_more_columns_than_bytes_can_describe_are_refused() -> None:
    column = table(text(b""), None, b"\6", table())
    with pytest.raises(LimitError, match="more parts than its bytes can describe"):
        tensorkeep.open(file_with(fields=repeated(20_000, column)))


@pytest.mark.parametrize("make", [shared_text, shared_metadata])
def test_too_much_repetition_is_named(make: Callable[[], bytes]) -> None:
    with pytest.raises(LimitError, match="repeats itself too often"):
        tensorkeep.open(make())

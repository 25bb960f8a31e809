"""A file of a known size that several processes fill, each at its own offsets.

One process reserves it, under a name in a staging directory. Until it has a header it begins with a random mark: a
late process, after another save has made a file of that name, finds a different mark and does not write.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from typing import Final

import msgspec

from tensorkeep.errors import BusyError, SourceChangedError, as_transport_error
from tensorkeep.limits import WRITE_NBYTES
from tensorkeep.transport.sources import ByteRange, LocalFile
from tensorkeep.transport.system import (
    _platform,
    begin_writeback,
    copy_range,
    preallocate,
    preallocation_pays,
    read_at,
    try_lock,
    write_at,
)

MARK_NBYTES: Final = 16
"""Bytes of the mark; a reserved file has at least this size."""

_MIN_BEGUN_NBYTES: Final = 2**20
"""Bytes below which a piece waits for the sync: the disk would get many small requests."""

_FLAGS: Final = os.O_RDWR | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)


class Reserved(msgspec.Struct, frozen=True):
    """What a process needs to open a reserved file.

    Attributes:
        path: Where it is.
        nbytes: Its size in bytes.
        mark: Its first bytes until it gets its header.
    """

    path: str
    nbytes: int
    mark: bytes


def make_room(fd: int, path: str, nbytes: int) -> Reserved:
    """Give a new file its size, and a mark."""
    if preallocation_pays(os.path.dirname(path)):
        preallocate(fd, nbytes)
    os.ftruncate(fd, nbytes)
    mark = secrets.token_bytes(MARK_NBYTES)
    write_at(fd, 0, memoryview(mark))
    return Reserved(path, nbytes, mark)


class ReservedFile:
    """A reserved file, open for filling; all methods but `close` may be called from several threads.

    If it `is_synced` in the end, the disk begins with what was written at once.
    """

    def __init__(self, reserved: Reserved, *, is_synced: bool = False) -> None:
        self._path = reserved.path
        self._is_synced = is_synced
        self._fd = -1
        with as_transport_error("could not write the file", self._path):
            self._fd = os.open(self._path, _FLAGS)
            _keep_pages_apart(self._fd)
            mark = bytearray(MARK_NBYTES)
            read_at(self._fd, 0, memoryview(mark))
            is_same = mark == reserved.mark and os.fstat(self._fd).st_size == reserved.nbytes
        if not is_same:
            self.close()
            raise BusyError("lost the save lock: another process decided this save had died", path=self._path)

    def write(self, offset: int, data: memoryview) -> None:
        """Write bytes to their place."""
        with as_transport_error("could not write the file", self._path):
            write_at(self._fd, offset, data)
        self._begin_writeback(offset, len(data))

    def copy_from(self, offset: int, source: LocalFile, span: ByteRange) -> None:
        """Copy bytes of a file to their place, inside the kernel where it can; by one thread at a time."""
        descriptor = source.descriptor()
        start = span.start
        with as_transport_error(f"could not copy from {source.name}", self._path):
            os.lseek(self._fd, offset, os.SEEK_SET)
            while start < span.stop:
                copied = copy_range(descriptor.number, start, self._fd, min(WRITE_NBYTES, span.stop - start))
                if not copied:
                    raise SourceChangedError("the file became shorter while it was open", path=source.name)
                self._begin_writeback(offset + start - span.start, copied)
                start += copied

    def write_rows(self, offset: int, step: int, data: memoryview, row_nbytes: int) -> None:
        """Write rows that are `step` bytes apart in the file."""
        with as_transport_error("could not write the file", self._path):
            _write_rows(self._fd, offset, step, data, row_nbytes)

    def _begin_writeback(self, offset: int, nbytes: int) -> None:
        if self._is_synced and nbytes >= _MIN_BEGUN_NBYTES:
            begin_writeback(self._fd, offset, nbytes)

    def sync(self) -> None:
        """Wait until everything written is on the disk."""
        with as_transport_error("could not write the file", self._path):
            os.fsync(self._fd)

    def close(self) -> None:
        """Close it once."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with as_transport_error("could not write the file", self._path):
                os.close(fd)


def _keep_pages_apart(fd: int) -> None:
    """Take a shared lock on a file that others fill too, until it is closed.

    The NFS client of Linux writes whole pages back, over what other machines have written to them, unless the file is
    locked (nfs_can_extend_write in its fs/nfs/write.c).
    """
    with suppress(OSError):  # a file system without locks
        try_lock(fd, is_shared=True)


def _write_rows(fd: int, offset: int, step: int, data: memoryview, row_nbytes: int) -> None:
    """Write each row by itself; a few gigabytes can be a million rows, so the loop does little."""
    write = os.pwrite if _platform.HAS_POSITIONED_IO else None
    for begin in range(0, len(data), row_nbytes):
        row = data[begin : begin + row_nbytes]
        written = write(fd, row, offset) if write else 0
        if written != row_nbytes:
            write_at(fd, offset + written, row[written:])
        offset += step

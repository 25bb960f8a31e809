"""Writes an open file, and takes over mode and owner of the file it will replace."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

from tensorkeep.buffers import Buffer
from tensorkeep.errors import SourceChangedError, as_transport_error
from tensorkeep.limits import WRITE_NBYTES, WRITEBACK_NBYTES
from tensorkeep.transport.sources import ByteRange, ByteSource, Descriptor, JoinedSource, LocalFile
from tensorkeep.transport.system import (
    GATHER_MAX,
    begin_writeback,
    copy_range,
    gather_write,
    preallocate,
    preallocation_pays,
    write_at,
)


class Extension:
    """Bytes at the end of a file, which several threads write in any order: `ByteExtension`.

    It has a descriptor of its own, since a thread may still be writing when the file is closed after an interrupt.
    """

    def __init__(self, descriptor: Descriptor, path: str, start: int, advance: Callable[[int], None]) -> None:
        self._descriptor = descriptor
        self._path = path
        self._start = start
        self._advance = advance
        self._lock = threading.Lock()

    def write(self, offset: int, data: memoryview) -> None:
        """Write bytes at an offset from its start."""
        for begin in range(0, len(data), WRITE_NBYTES):
            piece = data[begin : begin + WRITE_NBYTES]
            with as_transport_error("could not write the file", self._path):
                write_at(self._descriptor.number, self._start + offset + begin, piece)
            with self._lock:
                self._advance(len(piece))


class FileSink:
    """Writes to a descriptor, and closes it; what `is_synced` after the last byte goes to the disk meanwhile."""

    def __init__(
        self, fd: int, path: str, on_written: Callable[[int], None] | None = None, *, is_synced: bool = False
    ) -> None:
        self.fd = fd
        self._path = path
        self._on_written = on_written
        self._is_synced = is_synced
        self._n_written = 0
        self._n_begun = 0

    def close(self) -> None:
        """Close the descriptor once; a later write gets an error, never another file's descriptor."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def preallocate(self, nbytes: int) -> None:
        """Reserve room where that is cheap; see `ByteSink.preallocate`."""
        if preallocation_pays(os.path.dirname(self._path)):
            with as_transport_error("could not write the file", self._path):
                preallocate(self.fd, nbytes)

    def write(self, buffers: Iterable[Buffer]) -> None:
        """Append buffers; see `ByteSink.write`."""
        pending: list[memoryview] = []
        pending_nbytes = 0
        for buffer in buffers:
            view = memoryview(buffer)
            if view.nbytes > WRITE_NBYTES:  # no single call may delay an interrupt for long
                self._flush(pending)
                pending, pending_nbytes = [], 0
                whole = view.cast("B")
                for begin in range(0, len(whole), WRITE_NBYTES):
                    self._flush([whole[begin : begin + WRITE_NBYTES]])
                continue
            pending.append(view)
            pending_nbytes += view.nbytes
            if len(pending) == GATHER_MAX or pending_nbytes >= WRITE_NBYTES:
                self._flush(pending)
                pending = []
                pending_nbytes = 0
        self._flush(pending)

    def _flush(self, pending: list[memoryview]) -> None:
        with as_transport_error("could not write the file", self._path):
            nbytes = gather_write(self.fd, pending)
        self._advance(nbytes)

    def _advance(self, nbytes: int) -> None:
        self._n_written += nbytes
        if self._is_synced and (waiting := self._n_written - self._n_begun) >= WRITEBACK_NBYTES:
            begin_writeback(self.fd, self._n_begun, waiting)
            self._n_begun = self._n_written
        if self._on_written is not None:
            self._on_written(self._n_written)

    def extend(self, nbytes: int) -> Extension:
        """Append bytes that threads write in any order; see `ExtensibleSink.extend`."""
        with as_transport_error("could not write the file", self._path):
            start = os.lseek(self.fd, nbytes, os.SEEK_CUR) - nbytes
            return Extension(Descriptor(os.dup(self.fd)), self._path, start, self._advance)

    def rewrite(self, offset: int, data: Buffer) -> None:
        """Overwrite bytes that were written before; see `ByteSink.rewrite`."""
        view = memoryview(data).cast("B")
        if offset < 0 or offset + len(view) > self._n_written:
            raise ValueError(f"[{offset}, {offset + len(view)}) is not inside the {self._n_written} bytes written")
        with as_transport_error("could not write the file", self._path):
            write_at(self.fd, offset, view)

    def copy_from(self, source: ByteSource, span: ByteRange) -> None:
        """Append bytes of a source; see `ByteSink.copy_from`."""
        if isinstance(source, JoinedSource):
            for part, inner in source.split(span):
                self.copy_from(part, inner)
        elif isinstance(source, LocalFile):
            self._copy_from_file(source, span)
        else:
            for piece in source.pieces(span):
                self.write([piece])

    def _copy_from_file(self, source: LocalFile, span: ByteRange) -> None:
        start = span.start
        descriptor = source.descriptor()
        while start < span.stop:
            with as_transport_error(f"could not copy from {source.name}", self._path):
                copied = copy_range(descriptor.number, start, self.fd, min(WRITE_NBYTES, span.stop - start))
            if copied == 0:
                raise SourceChangedError(
                    "the file became shorter while it was open",
                    path=source.name,
                    expected=f"{len(span):,} bytes at {span.start:,}",
                    found=f"{start - span.start:,}",
                    hint="Do not write to a checkpoint in place; save beside it and rename",
                )
            start += copied
            self._advance(copied)


def take_over_mode(fd: int, before: os.stat_result) -> None:
    """Give a file the mode of the file it will replace, and its owner or at least group if allowed."""
    if not hasattr(os, "fchmod"):
        return
    mode = stat.S_IMODE(before.st_mode)
    now = os.fstat(fd)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        try:
            os.fchown(fd, before.st_uid, before.st_gid)
        except OSError:
            with suppress(OSError):
                os.fchown(fd, -1, before.st_gid)
        if os.fstat(fd).st_gid != before.st_gid:
            mode &= ~stat.S_IRWXG  # the rights of the old group were not granted to another one
    os.fchmod(fd, mode)

"""A local file, mapped or read.

A mapped file is read only where it is touched, and never copied; but if someone truncates it, touching a lost page
kills the process (SIGBUS). A file that is read is copied into memory, and truncation is an error.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from difflib import SequenceMatcher
from itertools import islice
from mmap import ALLOCATIONGRANULARITY
from typing import Any

from tensorkeep.buffers import Buffer
from tensorkeep.errors import SourceChangedError, SourceMissingError, TransportError, as_transport_error
from tensorkeep.limits import COPIED_PIECE_NBYTES, GAP_NBYTES, MAPPED_FROM_NBYTES, PIECE_NBYTES, READ_NBYTES
from tensorkeep.parallel import Workers
from tensorkeep.transport.sources._base import Backend, ByteRange
from tensorkeep.transport.system import map_private, mapped_pieces, mapping_pays, read_at, read_new

_MAX_READERS = 4
"""Threads that read one file; more were slower on a local disk, cold and warm."""

_PARALLEL_FROM_NBYTES = 4 * 2**20
"""Bytes from which parallel reads are faster."""

_N_NAMES = 1000
"""Names in a directory that are compared with a misspelt one."""

_LIKENESS = 0.75
"""Least similarity of a name to its misspelling."""

_WITHOUT_DIGITS = str.maketrans("", "", "0123456789")


_threads = threading.local()


@contextmanager
def reading_alone() -> Iterator[None]:
    """Let the calling thread start no threads to read local files: it is one of those that were asked for."""
    before = getattr(_threads, "read_alone", False)
    _threads.read_alone = True
    try:
        yield
    finally:
        _threads.read_alone = before


class LocalFile:
    """A regular file, open for reading.

    Attributes:
        is_proven_here: Whether this process has read it whole to compare it with a signature. Another process cannot
            know that it finds the same bytes.
    """

    gap_nbytes = GAP_NBYTES
    is_proven_here = False

    def __init__(self, path: str, *, backend: Backend = "auto") -> None:
        self.name = path
        self._path = os.path.abspath(path)
        self._requested: Backend = backend
        with as_transport_error("could not open the file", path):
            self._descriptor: Descriptor | None = Descriptor(_open_regular(path))
            status = os.fstat(self._descriptor.number)
        self.nbytes = status.st_size
        self._identity = _identity_of(status)
        self._maps = self.nbytes > 0 and (backend == "mmap" or (backend == "auto" and mapping_pays(path)))

    @property
    def path(self) -> str:
        """Its absolute path."""
        return self._path

    @property
    def mtime_ns(self) -> int:
        """When it had last been written as it was opened."""
        return self._identity[3]

    @property
    def was_replaced(self) -> bool:
        """Whether its path leads to another file by now, or to none, or it was written to."""
        try:
            return _identity_of(os.stat(self._path)) != self._identity
        except OSError:
            return True

    @property
    def backend(self) -> Backend:
        """How this file is read: `"mmap"` or `"pread"`."""
        return "mmap" if self._maps else "pread"

    def map(self, span: ByteRange) -> tuple[Buffer, int] | None:
        """Return a new private mapping, or None if the file is read."""
        if not self._maps:
            return None
        descriptor = self.descriptor()
        if os.fstat(descriptor.number).st_size < span.stop:
            raise SourceChangedError("could not map the file: it became shorter while it was open", path=self.name)
        start = span.start - span.start % ALLOCATIONGRANULARITY
        try:
            return map_private(descriptor.number, start, span.stop - start), start
        except (OSError, ValueError) as error:
            raise TransportError(
                "could not map the file", path=self.name, found=str(error), hint='Read it instead: backend="pread"'
            ) from error

    def descriptor(self) -> Descriptor:
        """Return the descriptor; while it is referenced, it stays open and its number is not reused."""
        if self._descriptor is None:
            raise TransportError("File is closed", path=self.name)
        return self._descriptor

    def read(self, span: ByteRange) -> Buffer:
        """Return the bytes of a range in new memory."""
        descriptor = self.descriptor()
        with as_transport_error("could not read the file", self.name):
            data = read_new(descriptor.number, span.start, len(span))
        if len(data) != len(span):
            raise self._shortened(span.start, len(span), len(data))
        return data

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of a range, without a copy where the kernel can do that safely."""
        descriptor = self.descriptor()
        done = span.start
        if self._maps and len(span) >= MAPPED_FROM_NBYTES:
            with suppress(OSError, ValueError):  # if it cannot be mapped, it is read below, with a clear error
                for piece in mapped_pieces(descriptor.number, span.start, span.stop, PIECE_NBYTES):
                    yield piece
                    done += len(piece)
        into = memoryview(bytearray(min(COPIED_PIECE_NBYTES, span.stop - done)))
        while done < span.stop:
            part = into[: span.stop - done]
            self._read_part(done, part)
            yield part
            done += len(part)

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers in large reads, parallel ones unless the caller is `reading_alone`."""
        self.descriptor()
        pieces = list(_split(parts))
        is_parallel = len(pieces) > 1 and not getattr(_threads, "read_alone", False)
        if not is_parallel or sum(len(into) for _, into in pieces) < _PARALLEL_FROM_NBYTES:
            self._read_parts(pieces)
            return
        n_readers = min(_MAX_READERS, max(2, os.cpu_count() or 2))
        with Workers(n_readers, "tensorkeep-read") as readers:
            waiting = [readers.submit(self._read_part, offset, into) for offset, into in pieces]
            try:
                for future in waiting:
                    future.result()
            except BaseException:
                readers.shutdown(cancel=True)
                raise

    def _read_part(self, offset: int, into: memoryview) -> None:
        self._read_parts([(offset, into)])

    def _read_parts(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        descriptor = self.descriptor()
        with as_transport_error("could not read the file", self.name):
            for offset, into in parts:
                done = read_at(descriptor.number, offset, into)
                if done != len(into):
                    break
            else:
                return
        raise self._shortened(offset, len(into), done)

    def _shortened(self, offset: int, nbytes: int, done: int) -> SourceChangedError:
        return SourceChangedError(
            "the file became shorter while it was open",
            path=self.name,
            expected=f"{nbytes:,} bytes at {offset:,}",
            found=f"{done:,}",
            hint="Do not write to a checkpoint in place; save under another name and rename",
        )

    def close(self) -> None:
        """Close the file; mappings stay valid, and running reads complete."""
        self._descriptor = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._path, self._requested, self._identity)


def _identity_of(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _reopen(path: str, backend: Backend, identity: tuple[int, ...]) -> LocalFile:
    file = LocalFile(path, backend=backend)
    if file._identity != identity:
        raise SourceChangedError("the file changed after this was pickled", path=path, hint="Open it again")
    return file


def _open_regular(path: str) -> int:
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)  # a pipe would wait for a writer
    try:
        if os.path.isdir(path):  # Windows cannot open directories
            raise TransportError("not a regular file", path=path, expected="a file", found="a directory")
        fd = os.open(path, flags)
    except FileNotFoundError:
        raise SourceMissingError.at(path, hint=_near(path)) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise TransportError("not a regular file", path=path, expected="a file", found="a pipe, a socket or a device")
    return fd


def _near(path: str) -> str | None:
    """Suggest a file with a similar name."""
    directory, name = os.path.split(path)
    try:
        with os.scandir(directory or os.curdir) as entries:
            near = next((entry.name for entry in islice(entries, _N_NAMES) if _is_near(entry.name, name)), None)
    except OSError:
        return None
    return f"Did you mean {os.path.join(directory, near)}?" if near else None


def _is_near(first: str, second: str) -> bool:
    """Whether one name may be a misspelling of another; names that differ only in digits are not."""
    if first.translate(_WITHOUT_DIGITS) == second.translate(_WITHOUT_DIGITS):
        return False
    (stem, suffix), (other_stem, other_suffix) = os.path.splitext(first.lower()), os.path.splitext(second.lower())
    stems, suffixes = (SequenceMatcher(None, *pair) for pair in ((stem, other_stem), (suffix, other_suffix)))
    return min(stems.ratio(), suffixes.ratio()) >= _LIKENESS


class Descriptor:
    """A file descriptor that is closed with the last reference to it.

    Attributes:
        number: The descriptor's number.
    """

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # at exit, `os` may be gone
        close(self.number)


def _split(parts: Iterable[tuple[int, memoryview]]) -> Iterator[tuple[int, memoryview]]:
    for offset, into in parts:
        for begin in range(0, len(into), READ_NBYTES):
            yield offset + begin, into[begin : begin + READ_NBYTES]

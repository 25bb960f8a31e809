"""A local file, mapped or read: the same bytes, two ways of getting them.

Mapped, nothing is read before it is touched and nothing is copied, but a file that somebody else truncates ends the
process (SIGBUS): that is how mapping works. Read, every byte is owned, and truncation is an error.
"""

from __future__ import annotations

import mmap
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from tensorkeep.buffers import Buffer
from tensorkeep.errors import SourceChangedError, SourceMissingError, TransportError, as_transport_error
from tensorkeep.limits import READ_NBYTES
from tensorkeep.transport._base import Backend, ByteRange
from tensorkeep.transport._mounts import mapping_pays
from tensorkeep.transport._platform import read_at

__all__ = ["LocalFile"]

_MAX_READERS = 4
"""Threads that read one file; more were slower on a local disk, cold and warm."""

_PARALLEL_FROM_NBYTES = 4 * 2**20
"""Bytes below which starting threads costs more than it saves."""

_MAP_NORESERVE = 0x4000
"""Linux: copy-on-write pages that are never written need no swap set aside (mmap(2))."""


class LocalFile:
    """A regular file, open for reading.

    Args:
        path: The file.
        backend: `"mmap"`, `"pread"`, or `"auto"`: mapped unless it is on a network or FUSE file system.

    Raises:
        SourceMissingError: If there is no such file.
        TransportError: If it is not a regular file or cannot be opened.
    """

    def __init__(self, path: str, *, backend: Backend = "auto") -> None:
        self.name = path
        self._path = os.path.abspath(path)
        self._requested: Backend = backend
        with as_transport_error("could not open the file", path):
            self._fd = _open_regular(path)
        status = os.fstat(self._fd)
        self.nbytes = status.st_size
        self._identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        self._maps = self.nbytes > 0 and (backend == "mmap" or (backend == "auto" and mapping_pays(path)))

    @property
    def backend(self) -> Backend:
        """How this file is read: `"mmap"` or `"pread"`."""
        return "mmap" if self._maps else "pread"

    def map(self) -> Buffer | None:
        """Return a new private mapping of the whole file, or None if it is read.

        Raises:
            TransportError: If the system refuses the mapping.
        """
        if not self._maps:
            return None
        if self._fd < 0:  # which would map zeros
            raise TransportError("the file is closed", path=self.name)
        try:
            return _map_private(self._fd, self.nbytes)
        except (OSError, ValueError) as error:  # ValueError: the file became shorter
            raise TransportError(
                "could not map the file", path=self.name, found=str(error), hint='Read it instead: backend="pread"'
            ) from error

    def read(self, span: ByteRange) -> Buffer:
        """Return the bytes of a range, owned by the caller.

        Args:
            span: Half-open, inside the file.

        Returns:
            The bytes.

        Raises:
            TransportError: If they cannot be read whole.
        """
        data = bytearray(len(span))
        self._read_part(span.start, memoryview(data))
        return data

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers in large reads, several at a time.

        Args:
            parts: Byte offset in the file, and the writable bytes to fill from there.

        Raises:
            TransportError: If any cannot be filled whole.
        """
        pieces = list(_split(parts))
        if sum(len(into) for _, into in pieces) < _PARALLEL_FROM_NBYTES:
            for offset, into in pieces:
                self._read_part(offset, into)
            return
        from concurrent.futures import ThreadPoolExecutor  # 18 ms, which most commands need not pay

        n_readers = min(_MAX_READERS, max(2, os.cpu_count() or 2))
        with ThreadPoolExecutor(n_readers, thread_name_prefix="tensorkeep-read") as readers:
            for _ in readers.map(lambda piece: self._read_part(*piece), pieces):
                pass

    def _read_part(self, offset: int, into: memoryview) -> None:
        with as_transport_error("could not read the file", self.name):
            done = read_at(self._fd, offset, into)
        if done != len(into):
            raise SourceChangedError(
                "the file became shorter while it was open",
                path=self.name,
                expected=f"{len(into):,} bytes at {offset:,}",
                found=f"{done:,}",
                hint="Do not write to a checkpoint in place; save beside it and rename",
            )

    def close(self) -> None:
        """Let go of the file; tensors over its mappings stay valid."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        """Close the descriptor of a file that nobody closed."""
        if getattr(self, "_fd", -1) >= 0:
            self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path and the identity, not the descriptor."""
        return _reopen, (self._path, self._requested, self._identity)


def _reopen(path: str, backend: Backend, identity: tuple[int, ...]) -> LocalFile:
    file = LocalFile(path, backend=backend)
    if file._identity != identity:
        raise SourceChangedError(
            "the file is not the one that was open when this was pickled", path=path, hint="Open it anew"
        )
    return file


def _open_regular(path: str) -> int:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        raise SourceMissingError(f"No such file or directory: {path}", path=path) from None
    if not stat.S_ISREG(mode):  # opening a pipe would wait for a writer
        kind = "a directory" if stat.S_ISDIR(mode) else "a pipe, a socket or a device"
        raise TransportError("not a regular file", path=path, expected="a file", found=kind)
    return os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0))


def _map_private(fd: int, nbytes: int) -> mmap.mmap:
    """Map a file so that tensors over it can be written to without the file changing."""
    if sys.platform != "linux":
        return mmap.mmap(fd, nbytes, access=mmap.ACCESS_COPY)
    flags = mmap.MAP_PRIVATE | _MAP_NORESERVE
    if sys.version_info >= (3, 13):
        return mmap.mmap(fd, nbytes, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE, trackfd=False)
    return mmap.mmap(fd, nbytes, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)


def _split(parts: Iterable[tuple[int, memoryview]]) -> Iterator[tuple[int, memoryview]]:
    for offset, into in parts:
        for begin in range(0, len(into), READ_NBYTES):
            yield offset + begin, into[begin : begin + READ_NBYTES]

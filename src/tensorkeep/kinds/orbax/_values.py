"""The values of a store as one source, whichever files they are in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from tensorkeep.buffers import Buffer
from tensorkeep.errors import FormatError, IntegrityError, TransportError
from tensorkeep.limits import GAP_NBYTES, PIECE_NBYTES
from tensorkeep.locks import ReadLock
from tensorkeep.parallel import parallel_for_each
from tensorkeep.transport import Backend, ByteRange, ByteSource, MemorySource, is_remote, join, open_source

_FILE_NBYTES: Final = 2**48
"""Bytes that each file has for itself in the source; no file system holds a larger one."""

_MAX_OPEN: Final = 64
"""Files that stay open; others are opened for each read."""

_AT_ONCE: Final = 16
"""Files on a server that are opened at once: each is a request."""


class ValueFiles:
    """Files below a directory, the n-th from byte n * 2^48 on; number 0 is in memory. They are opened when read."""

    def __init__(self, directory: str, backend: Backend) -> None:
        self.name = directory
        self.nbytes = _FILE_NBYTES
        self._backend = backend
        self._numbers: dict[str, int] = {"": 0}
        self._names = [""]
        self._opened: dict[int, ByteSource] = {}
        self._is_closed = False
        self._lock = ReadLock()

    @property
    def gap_nbytes(self) -> int:
        """The largest gap that is worth reading across, in files that are open."""
        with self._lock:
            return max((file.gap_nbytes for file in self._opened.values()), default=GAP_NBYTES)

    @property
    def file_names(self) -> list[str]:
        """The files, as paths below the directory."""
        return self._names[1:]

    def keep(self, inline: bytes) -> None:
        """Set the bytes of the file in memory."""
        self._opened[0] = MemorySource(inline, self.name)

    def span_in(self, name: str, span: ByteRange) -> ByteRange:
        """Return where bytes of a file are in the source; the empty name is the file in memory."""
        number = self._number_of(name)
        if span.stop > _FILE_NBYTES:
            raise FormatError(
                "a value is where no file has bytes", path=join(self.name, name), found=f"{span.stop:,}"
            )
        start = _FILE_NBYTES * number
        return ByteRange(start + span.start, start + span.stop)

    def stored_nbytes(self) -> int:
        """Return the bytes of all files."""
        found: list[int] = []
        parallel_for_each(self.file_names, lambda name: found.append(self.size_of(name)), n_threads=self.n_threads)
        return sum(found)

    def size_of(self, name: str) -> int:
        """Return the bytes of a file."""
        with self._file(self._number_of(name)) as file:
            return file.nbytes

    def _number_of(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            with self._lock:
                number = self._numbers.setdefault(name, len(self._names))
                self._names += [name] if number == len(self._names) else []
                self.nbytes = _FILE_NBYTES * len(self._names)
        return number

    @property
    def n_threads(self) -> int:
        """How many files are opened at once."""
        return _AT_ONCE if is_remote(self.name) else 1

    def map(self, span: ByteRange) -> None:
        """Return None: what is in a file is small, or compressed."""

    def read(self, span: ByteRange) -> Buffer:
        """Return bytes of one file."""
        data = bytearray(len(span))
        self.read_into([(span.start, memoryview(data))])
        return data

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:
        """Yield bytes of one file."""
        for start in range(span.start, span.stop, PIECE_NBYTES):
            yield self.read(ByteRange(start, min(start + PIECE_NBYTES, span.stop)))

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers, from several files of a server at once."""
        by_file: dict[int, list[tuple[int, memoryview]]] = {}
        for offset, into in parts:
            number, start = divmod(offset, _FILE_NBYTES)
            by_file.setdefault(number, []).append((start, into))
        parallel_for_each(by_file.items(), self._fill, n_threads=self.n_threads if len(by_file) > 1 else 1)

    def _fill(self, of_file: tuple[int, list[tuple[int, memoryview]]]) -> None:
        number, parts = of_file
        with self._file(number) as file:
            stop = max(start + len(into) for start, into in parts)
            if stop > file.nbytes:
                raise IntegrityError(
                    "the file ends before its values do",
                    path=file.name,
                    expected=f"at least {stop:,} bytes",
                    found=f"{file.nbytes:,}",
                    hint="If it was cut off, get it again",
                )
            file.read_into(parts)

    @contextmanager
    def _file(self, number: int) -> Iterator[ByteSource]:
        with self._lock:
            if self._is_closed:
                raise TransportError("File is closed", path=self.name)
            known = self._opened.get(number)
        if known is not None:
            yield known
            return
        file = open_source(join(self.name, self._names[number]), backend=self._backend)
        with self._lock:
            if len(self._opened) == _MAX_OPEN and is_remote(self.name):  # there is nothing to close
                self._opened.pop(next(filter(None, self._opened)))
            is_kept = len(self._opened) < _MAX_OPEN and number not in self._opened and not self._is_closed
            if is_kept:
                self._opened[number] = file
        try:
            yield file
        finally:
            if not is_kept:
                file.close()

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            self._is_closed = True
            opened, self._opened = self._opened, {}
        for file in opened.values():
            file.close()

"""A temporary file whose bytes the disk never has in plain: written at any places, and read again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from tensorkeep.buffers import Buffer
from tensorkeep.encryption._cipher import ScratchCipher
from tensorkeep.limits import WRITE_NBYTES
from tensorkeep.transport import ByteRange, ByteSource


class _Writable(Protocol):
    def write(self, offset: int, data: memoryview) -> None: ...


class ScratchWriter:
    """Encrypts what is written to a file; every place must be written once."""

    def __init__(self, file: _Writable, cipher: ScratchCipher) -> None:
        self._file = file
        self._cipher = cipher

    def write(self, offset: int, data: memoryview) -> None:
        """Write bytes at an offset; they are encrypted a few MiB at a time."""
        for begin in range(0, len(data), WRITE_NBYTES):
            piece = data[begin : begin + WRITE_NBYTES]
            self._file.write(offset + begin, memoryview(self._cipher.apply(piece, offset + begin)))


class ScratchSource:
    """Decrypts what is read of such a file."""

    def __init__(self, source: ByteSource, cipher: ScratchCipher) -> None:
        self.name = source.name
        self.nbytes = source.nbytes
        self.gap_nbytes = source.gap_nbytes
        self._source = source
        self._cipher = cipher

    def map(self, span: ByteRange) -> tuple[Buffer, int] | None:  # noqa: ARG002 - the protocol's
        """Return None: the file has no plain bytes."""
        return None

    def read(self, span: ByteRange) -> Buffer:
        """Return the plain bytes of a range."""
        return self._cipher.apply(self._source.read(span), span.start)

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:
        """Yield the plain bytes of a range in order."""
        start = span.start
        for piece in self._source.pieces(span):
            yield self._cipher.apply(piece, start)
            start += memoryview(piece).nbytes

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers."""
        for offset, into in parts:
            into[:] = memoryview(self.read(ByteRange(offset, offset + len(into))))

    def close(self) -> None:
        """Close the file."""
        self._source.close()

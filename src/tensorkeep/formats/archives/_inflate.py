"""A deflated member of a zip archive as a source of its own.

Deflate has no entry points, so every read inflates the member from its first byte and keeps only what was asked for.
A read that starts where the last one ended, or later, continues there. Memory is bounded, however large the member.
A read that reaches the end checks the CRC-32.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final, NoReturn

from tensorkeep.buffers import Buffer
from tensorkeep.errors import ArchiveError, LimitError
from tensorkeep.formats.archives._zip import Member
from tensorkeep.limits import MAX_DEFLATE_RATIO
from tensorkeep.locks import ReadLock
from tensorkeep.transport import ByteRange, ByteSource

_STORED_NBYTES: Final = 2**16
"""Deflated bytes passed to zlib per call: it copies the input that it does not use."""

_READ_NBYTES: Final = 2**18
_GAPS_PER_READ: Final = 4
"""Deflated bytes per read: at least the first, and the second times the source's `gap_nbytes`."""

_PIECE_NBYTES: Final = 2**20
"""Inflated bytes requested from zlib per call."""


def inflate_head(deflated: bytes, max_nbytes: int) -> bytes:
    """Return the first bytes of a member, inflated from its first deflated bytes."""
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(deflated, max_nbytes)
    except zlib.error as error:
        raise ArchiveError("the member cannot be inflated", found=str(error)) from None


class InflatedSource:
    """The contents of one deflated member."""

    def __init__(self, source: ByteSource, member: Member) -> None:
        if member.nbytes > MAX_DEFLATE_RATIO * len(member.span):
            raise LimitError(
                f"member `{member.name}` is declared larger than its bytes can inflate to",
                path=source.name,
                expected=f"at most {MAX_DEFLATE_RATIO:,} times its {len(member.span):,} bytes",
                found=f"{member.nbytes:,} bytes",
            )
        self.name = source.name
        self.nbytes = self.gap_nbytes = member.nbytes  # bytes between two reads are inflated in any case
        self._source = source
        self._member = member
        self._lock = ReadLock()
        self._stream: _Stream | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return InflatedSource, (self._source, self._member)

    def map(self, span: ByteRange) -> tuple[Buffer, int] | None:  # noqa: ARG002 - the protocol's
        """Return None: the inflated bytes are stored nowhere."""
        return None

    def read(self, span: ByteRange) -> Buffer:
        """Return the bytes of a range."""
        data = bytearray(len(span))
        self.read_into([(span.start, memoryview(data))])
        return data

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of a range in order, with a stream of its own."""
        stream = _Stream(self._source, self._member)
        stream.skip(span.start)
        while stream.position < span.stop:
            yield stream.take(span.stop - stream.position)

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers, in the order of their bytes."""
        with self._lock:
            for start, into in sorted(parts, key=lambda part: part[0]):
                stream = self._stream
                if stream is None or stream.position > start:
                    stream = _Stream(self._source, self._member)
                self._stream = None  # not kept after an error
                stream.skip(start - stream.position)
                done = 0
                while done < len(into):
                    piece = stream.take(len(into) - done)
                    into[done : done + len(piece)] = piece
                    done += len(piece)
                self._stream = stream

    def close(self) -> None:
        """Drop the archive, which stays open."""
        self._stream = None
        self._source.close()


class _Stream:
    """Inflates a member from its first byte on.

    Attributes:
        position: Inflated bytes taken so far.
    """

    def __init__(self, source: ByteSource, member: Member) -> None:
        from zlib_ng import zlib_ng

        self.position = 0
        self._path = source.name
        self._member = member
        self._error: Any = zlib_ng.error
        self._crc32 = zlib_ng.crc32
        self._inflater = zlib_ng.decompressobj(-zlib_ng.MAX_WBITS)
        self._crc = 0
        self._stored = _parts_of(source, member.span)

    def skip(self, nbytes: int) -> None:
        """Skip bytes."""
        stop = self.position + nbytes
        while self.position < stop:
            self.take(stop - self.position)

    def take(self, max_nbytes: int) -> bytes:
        """Return the next bytes: at least one, at most a piece."""
        piece = b""
        while not piece:
            stored = self._inflater.unconsumed_tail or next(self._stored, b"")
            piece = self._inflate(stored, min(max_nbytes, _PIECE_NBYTES))
            if not piece and (self._inflater.eof or not stored):
                self._refuse("is shorter than declared", f"{self.position:,} bytes")
        self.position += len(piece)
        self._crc = self._crc32(piece, self._crc)
        if self.position == self._member.nbytes:
            self._check_end()
        return piece

    def _inflate(self, stored: bytes, max_nbytes: int) -> bytes:
        try:
            return self._inflater.decompress(stored, max_nbytes)
        except self._error as error:
            self._refuse("cannot be inflated", str(error))

    def _check_end(self) -> None:
        while not self._inflater.eof:  # the last input may hold only the end marker
            stored = self._inflater.unconsumed_tail or next(self._stored, b"")
            if self._inflate(stored, 1) or not (stored or self._inflater.eof):
                self._refuse("is longer than declared", f"more than {self.position:,} bytes")
        if self._inflater.unused_data or next(self._stored, b""):
            self._refuse("has bytes after its end", f"{self.position:,} bytes, and more")
        if self._member.crc and self._crc != self._member.crc:
            self._refuse("is damaged", f"CRC-32 {self._crc:#010x}", f"CRC-32 {self._member.crc:#010x}")

    def _refuse(self, problem: str, found: str, expected: str | None = None) -> NoReturn:
        raise ArchiveError(
            f"member `{self._member.name}` {problem}",
            path=self._path,
            expected=expected or f"{self._member.nbytes:,} bytes",
            found=found,
        )


def _parts_of(source: ByteSource, span: ByteRange) -> Iterator[bytes]:
    """Yield the deflated bytes, in reads that are long enough for a distant source."""
    nbytes = max(_READ_NBYTES, _GAPS_PER_READ * source.gap_nbytes)
    for start in range(span.start, span.stop, nbytes):
        data = memoryview(source.read(ByteRange(start, min(start + nbytes, span.stop))))
        for part in range(0, len(data), _STORED_NBYTES):
            yield bytes(data[part : part + _STORED_NBYTES])

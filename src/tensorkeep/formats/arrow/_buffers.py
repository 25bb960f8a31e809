"""Buffers that are not what a tensor needs: compressed ones, and bits. Each is a source of what it unpacks to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

from tensorkeep.buffers import Buffer
from tensorkeep.errors import FormatError
from tensorkeep.formats._zstd import unpack_zstd
from tensorkeep.formats.arrow._lz4 import decode_lz4
from tensorkeep.limits import PIECE_NBYTES
from tensorkeep.locks import ReadLock
from tensorkeep.transport import ByteRange, ByteSource

Codec = Literal["lz4", "zstd"]
CODECS: Final[tuple[Codec, ...]] = ("lz4", "zstd")
"""In the order of their numbers."""

MAX_RATIOS: Final[dict[Codec, int]] = {"lz4": 255, "zstd": 2**15}
"""Bytes that each can make of one byte at most."""

_LENGTH_NBYTES: Final = 8
_STORED: Final = -1
"""In place of the length: the buffer did not become smaller, and is stored."""

_BITS: Final = 8


class CompressedSource:
    """A compressed buffer of `nbytes` bytes; each read decompresses it whole."""

    def __init__(self, source: ByteSource, span: ByteRange, codec: Codec, nbytes: int) -> None:
        self.name = source.name
        self.nbytes = self.gap_nbytes = nbytes
        self._source = source
        self._span = span
        self._codec: Codec = codec
        self._lock = ReadLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return CompressedSource, (self._source, self._span, self._codec, self.nbytes)

    def map(self, span: ByteRange) -> tuple[Buffer, int] | None:  # noqa: ARG002 - the protocol's
        """Return None: the bytes are stored nowhere."""
        return None

    def read(self, span: ByteRange) -> Buffer:
        """Return the bytes of a range."""
        return memoryview(self._decoded())[span.start : span.stop]

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of a range."""
        yield self.read(span)

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers."""
        data = memoryview(self._decoded())
        for start, into in parts:
            into[:] = data[start : start + len(into)]

    def close(self) -> None:
        """Close the file."""
        self._source.close()

    def _decoded(self) -> Buffer:
        with self._lock:
            return decoded(bytes(self._source.read(self._span)), self._codec, self.nbytes, self.name)


def decoded(data: bytes, codec: Codec, nbytes: int | None, path: str) -> Buffer:
    """Return what a compressed buffer holds; `nbytes` is what it must be, or None if only the buffer says so."""
    length = int.from_bytes(data[:_LENGTH_NBYTES], "little", signed=True)
    if length == _STORED:
        length = len(data) - _LENGTH_NBYTES
        found: Buffer = memoryview(data)[_LENGTH_NBYTES:]
    elif length < 0 or (nbytes is None and length > MAX_RATIOS[codec] * len(data)) or (nbytes or length) > length:
        raise FormatError("a compressed buffer has an impossible length", path=path, found=f"{length:,} bytes")
    elif nbytes is not None and length > nbytes + _MOST_PADDING:
        raise FormatError("a compressed buffer is longer than its column", path=path, found=f"{length:,} bytes")
    else:
        try:
            found = _DECODERS[codec](data[_LENGTH_NBYTES:], length)
        except FormatError as error:
            raise error.with_fields(path=path) from None
    if nbytes is not None and length < nbytes:
        raise FormatError(
            "a compressed buffer is shorter than its column", path=path, expected=f"{nbytes:,}", found=f"{length:,}"
        )
    return found if nbytes is None else memoryview(found)[:nbytes]


_MOST_PADDING: Final = 64
"""Bytes after a column's elements that count as part of its buffer."""


def _decode_zstd(data: bytes, nbytes: int) -> Buffer:
    found = unpack_zstd(data, nbytes)
    if len(found) != nbytes:
        raise FormatError("a zstd buffer has another length", expected=f"{nbytes:,} bytes", found=f"{len(found):,}")
    return found


_DECODERS: Final = {"lz4": decode_lz4, "zstd": _decode_zstd}


class BitSource:
    """The bits of a buffer as bytes of 0 and 1."""

    def __init__(self, source: ByteSource, span: ByteRange, n_bits: int) -> None:
        self.name = source.name
        self.nbytes = n_bits
        self.gap_nbytes = _BITS * source.gap_nbytes
        self._source = source
        self._span = span

    def __reduce__(self) -> tuple[Any, ...]:
        return BitSource, (self._source, self._span, self.nbytes)

    def map(self, span: ByteRange) -> tuple[Buffer, int] | None:  # noqa: ARG002 - the protocol's
        """Return None: the bytes are stored nowhere."""
        return None

    def read(self, span: ByteRange) -> Buffer:
        """Return the bytes of a range."""
        import numpy as np

        first, last = span.start // _BITS, -(-span.stop // _BITS)
        start = self._span.start
        packed = np.frombuffer(self._source.read(ByteRange(start + first, start + last)), np.uint8)
        skipped = span.start - _BITS * first
        return np.unpackbits(packed, bitorder="little")[skipped : skipped + len(span)].data

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of a range."""
        for start in range(span.start, span.stop, PIECE_NBYTES):
            yield self.read(ByteRange(start, min(start + PIECE_NBYTES, span.stop)))

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers."""
        for start, into in parts:
            done = 0
            for piece in self.pieces(ByteRange(start, start + len(into))):
                into[done : done + len(piece)] = piece
                done += len(piece)

    def close(self) -> None:
        """Close the file."""
        self._source.close()

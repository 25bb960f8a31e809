"""Reading metadata in few reads.

A structure is parsed by a generator that asks for ranges of bytes and is sent them. `together` runs many side by
side: what all of them ask for next is fetched at once, in blocks that are kept for a while. So the number of reads in
turn depends on the depth of a file's structures and not on their number, and the parsers do no I/O.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Any, Final, TypeVar

import msgspec

from tensorkeep.errors import FormatError, LimitError
from tensorkeep.formats.hdf5.structures._checksums import CHECKSUM_NBYTES, check_metadata
from tensorkeep.formats.hdf5.structures._fields import Fields
from tensorkeep.limits import GAP_NBYTES
from tensorkeep.transport import ByteRange, ByteSource

_T = TypeVar("_T")

Parsing = Generator[list[ByteRange], list[bytes], _T]
"""Yields the ranges of the file that it needs next, is sent their bytes, and returns what they mean."""

_LOCAL_BLOCK_NBYTES: Final = 2**12
_REMOTE_BLOCK_NBYTES: Final = 2**16
"""Bytes of a block: headers lie together in clusters of 2 KiB or more, with the data of tensors between them."""

_MAX_KEPT_NBYTES: Final = 2**25
"""Bytes of all blocks in memory."""

_READS_PER_BYTE: Final = 8
_MIN_ALLOWANCE_NBYTES: Final = 2**22
"""How many bytes parsers may ask for, so that structures that refer to the same bytes again and again end early."""


class Sealed(ByteRange, frozen=True):
    """A range that ends with the checksum of the rest, which is checked before anyone gets the bytes.

    Attributes:
        what: What is there, for people.
    """

    what: str


class Dialect(msgspec.Struct, frozen=True):
    """What every structure of a file depends on.

    Attributes:
        base: Byte of the source that addresses count from.
        nbytes: Bytes of the file from there on.
        address_nbytes: Bytes of an address.
        length_nbytes: Bytes of a length.
    """

    base: int
    nbytes: int
    address_nbytes: int
    length_nbytes: int

    @property
    def nowhere(self) -> bytes:
        """The address of nothing."""
        return b"\xff" * self.address_nbytes

    def address(self, fields: Fields) -> int | None:
        """Return the next address; None if it is of nothing."""
        raw = fields.take(self.address_nbytes)
        return None if raw.count(0xFF) == len(raw) else int.from_bytes(raw, "little")

    def length(self, fields: Fields) -> int:
        """Return the next length."""
        return fields.uint(self.length_nbytes)

    def span(self, address: int, nbytes: int) -> ByteRange:
        """Return the range of the source at an address, which must be in the file."""
        if address + nbytes > self.nbytes:
            raise FormatError(
                "the file refers to bytes beyond its end",
                expected=f"at most {self.nbytes:,} bytes",
                found=f"{nbytes:,} bytes at {address:,}",
                hint="If it was cut off, get it again",
            )
        return ByteRange(self.base + address, self.base + address + nbytes)

    def sealed(self, address: int, nbytes: int, what: str) -> Sealed:
        """Return the range of a structure that ends with its checksum."""
        span = self.span(address, nbytes)
        if nbytes < CHECKSUM_NBYTES:
            raise FormatError(f"{what} of the file is too short for its checksum", found=f"{nbytes:,} bytes")
        return Sealed(span.start, span.stop, what)

    def up_to(self, address: int, nbytes: int) -> ByteRange:
        """Return the same, cut off at the end of the file."""
        return self.span(address, max(0, min(nbytes, self.nbytes - address)))


class Blocks:
    """Reads a file in aligned blocks, and keeps the ones that were used last."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._size = _LOCAL_BLOCK_NBYTES if source.gap_nbytes == GAP_NBYTES else _REMOTE_BLOCK_NBYTES
        self._kept: dict[int, bytes] = {}
        self._allowance = _READS_PER_BYTE * source.nbytes + _MIN_ALLOWANCE_NBYTES

    def run(self, parsing: Parsing[_T]) -> _T:
        """Let a parser read what it needs, and return its result."""
        try:
            spans = next(parsing)
            while True:
                spans = parsing.send(self._read_all(spans))
        except StopIteration as end:
            result: _T = end.value
            return result

    def _read_all(self, spans: list[ByteRange]) -> list[bytes]:
        found: list[bytes] = []
        for batch in self._batches(spans):
            self._fetch(batch)
            data = [self._read(span) for span in batch]
            check_metadata(
                (each, span.what) for each, span in zip(data, batch, strict=True) if isinstance(span, Sealed)
            )
            found += data
        return found

    def _batches(self, spans: list[ByteRange]) -> Iterator[list[ByteRange]]:
        """Cut spans into batches whose blocks fit in memory."""
        batch: list[ByteRange] = []
        blocks: set[int] = set()
        n_most = _MAX_KEPT_NBYTES // 4 // self._size
        for span in spans:
            if len(blocks) > n_most:
                yield batch
                batch, blocks = [], set()
            batch.append(span)
            blocks.update(self._indexes(span))
        if batch:
            yield batch

    def _indexes(self, span: ByteRange) -> range:
        return range(span.start // self._size, -(-span.stop // self._size))

    def _fetch(self, spans: list[ByteRange]) -> None:
        """Read the blocks that are missing, neighbors together."""
        needed = sorted({index for span in spans for index in self._indexes(span)})
        missing = [index for index in needed if index not in self._kept]
        for index in needed:
            if index in self._kept:
                self._kept[index] = self._kept.pop(index)  # needed last, dropped last
        n_most = max(len(needed), _MAX_KEPT_NBYTES // self._size)
        for index in list(self._kept)[: max(0, len(self._kept) + len(missing) - n_most)]:
            del self._kept[index]
        runs = [
            (first, bytearray(min((first + n) * self._size, self._source.nbytes) - first * self._size))
            for first, n in _runs(missing)
        ]
        self._source.read_into([(first * self._size, memoryview(data)) for first, data in runs])
        for first, data in runs:
            for start in range(0, len(data), self._size):
                self._kept[first + start // self._size] = bytes(data[start : start + self._size])

    def _read(self, span: ByteRange) -> bytes:
        self._allowance -= len(span)
        if self._allowance < 0:
            raise LimitError(
                "the structures of the file refer to the same bytes again and again", path=self._source.name
            )
        indexes = self._indexes(span)
        if len(indexes) == 1:
            start = span.start - indexes.start * self._size
            return self._kept[indexes.start][start : start + len(span)]
        joined = b"".join([self._kept[index] for index in indexes])
        start = span.start - indexes.start * self._size
        return joined[start : start + len(span)]


def together(parsings: Iterable[Parsing[_T]]) -> Parsing[list[_T]]:
    """Let parsers read side by side what they need, and return their results in order."""
    waiting = list(parsings)
    if len(waiting) == 1:
        return [(yield from waiting[0])]
    results: list[Any] = []
    running: list[tuple[int, Parsing[_T], list[ByteRange]]] = []
    for place, parsing in enumerate(waiting):
        results.append(None)
        try:
            running.append((place, parsing, next(parsing)))
        except StopIteration as end:
            results[place] = end.value
    while running:
        data = yield [span for _, _, spans in running for span in spans]
        still: list[tuple[int, Parsing[_T], list[ByteRange]]] = []
        stop = 0
        for place, parsing, spans in running:
            start, stop = stop, stop + len(spans)
            try:
                still.append((place, parsing, parsing.send(data[start:stop])))
            except StopIteration as end:
                results[place] = end.value
        running = still
    return results


def _runs(indexes: list[int]) -> Iterator[tuple[int, int]]:
    """Group ascending numbers into runs, each as its first and its length."""
    first = n = 0
    for index in indexes:
        if n and index == first + n:
            n += 1
        else:
            if n:
                yield first, n
            first, n = index, 1
    if n:
        yield first, n

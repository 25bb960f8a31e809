"""A concatenation of ranges of other sources: a tensor split over files, a file with another header."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate

from tensorkeep.buffers import Buffer
from tensorkeep.errors import TransportError
from tensorkeep.transport.sources._base import ByteRange, ByteSource, check_inside


class JoinedSource:
    """Ranges of other sources, read as one; closing it leaves those sources open.

    It can be pickled if they can.
    """

    def __init__(self, parts: Iterable[tuple[ByteSource, ByteRange]], name: str) -> None:
        self.name = name
        filled = [(source, span) for source, span in parts if len(span)]
        for source, span in filled:
            check_inside(span, source)
        self._parts: list[tuple[ByteSource, ByteRange]] | None = filled
        self._starts = list(accumulate((len(span) for _, span in filled), initial=0))
        self.nbytes = self._starts[-1]
        self.gap_nbytes = min((source.gap_nbytes for source, _ in filled), default=0)

    def map(self, span: ByteRange) -> tuple[Buffer, int] | None:
        """Map a range inside one part, if that part can be mapped."""
        (source, inner), *others = self.split(span)
        mapping = None if others else source.map(inner)
        if mapping is None:
            return None
        buffer, first = mapping  # it may begin before this part
        start = span.start - (inner.start - first)
        return (buffer, start) if start >= 0 else (memoryview(buffer)[-start:], 0)

    def read(self, span: ByteRange) -> Buffer:
        """Return the bytes of a range; inside one part, as that source does."""
        inside = list(self.split(span))
        if len(inside) == 1:
            source, inner = inside[0]
            return source.read(inner)
        data = bytearray(len(span))
        self.read_into([(span.start, memoryview(data))])
        return data

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of a range in order."""
        for source, inner in self.split(span):
            yield from source.pieces(inner)

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers, with one call per source, so that each can read in parallel."""
        by_source: dict[int, tuple[ByteSource, list[tuple[int, memoryview]]]] = {}
        for offset, into in parts:
            done = 0
            for source, inner in self.split(ByteRange(offset, offset + len(into))):
                part = (inner.start, into[done : done + len(inner)])
                by_source.setdefault(id(source), (source, []))[1].append(part)
                done += len(inner)
        for source, inner_parts in by_source.values():
            source.read_into(inner_parts)

    def close(self) -> None:
        """Drop the parts; their sources stay open."""
        self._parts = None

    def split(self, span: ByteRange) -> Iterator[tuple[ByteSource, ByteRange]]:
        """Yield the ranges of the sources that make up a range, in order."""
        if self._parts is None:
            raise TransportError("File is closed", path=self.name)
        check_inside(span, self)
        position = span.start
        place = bisect_right(self._starts, position) - 1
        while position < span.stop:
            source, part = self._parts[place]
            skipped = position - self._starts[place]
            length = min(len(part) - skipped, span.stop - position)
            yield source, ByteRange(part.start + skipped, part.start + skipped + length)
            position += length
            place += 1

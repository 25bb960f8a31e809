"""Reads the ends of many members of an archive together, since each read from a distant source is a request."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tensorkeep.buffers import Buffer
from tensorkeep.formats.archives import TAIL_NBYTES, Member
from tensorkeep.scanner._content import HEAD_NBYTES
from tensorkeep.transport import ByteRange, ByteSource

_BATCH_NBYTES: Final = 16 * 2**20


def read_ahead(source: ByteSource, members: Sequence[Member]) -> Iterator[tuple[ByteSource, list[Member]]]:
    """Yield members in batches, each with a source that holds their ends."""
    batch: list[Member] = []
    n_batch = 0
    for member in members:
        batch.append(member)
        n_batch += min(len(member.span), HEAD_NBYTES + TAIL_NBYTES)
        if n_batch > _BATCH_NBYTES:
            yield _Ahead(source, batch), batch
            batch, n_batch = [], 0
    yield _Ahead(source, batch), batch


class _Ahead:
    """A source of which some parts are in memory."""

    def __init__(self, source: ByteSource, members: Iterable[Member]) -> None:
        self.name, self.nbytes, self.gap_nbytes = source.name, source.nbytes, source.gap_nbytes
        self._source = source
        spans = _joined(end for member in members for end in _ends_of(member.span))
        self._starts = [span.start for span in spans]
        self._parts = [bytearray(len(span)) for span in spans]
        source.read_into([(start, memoryview(part)) for start, part in zip(self._starts, self._parts, strict=True)])

    def map(self, span: ByteRange) -> tuple[Buffer, int] | None:
        return self._source.map(span)

    def read(self, span: ByteRange) -> Buffer:
        place = bisect_right(self._starts, span.start) - 1
        if place >= 0:
            start, part = self._starts[place], self._parts[place]
            if span.stop <= start + len(part):
                return part[span.start - start : span.stop - start]
        return self._source.read(span)

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:
        return self._source.pieces(span)

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        self._source.read_into(parts)

    def close(self) -> None:
        self._source.close()


def _ends_of(span: ByteRange) -> Iterator[ByteRange]:
    yield ByteRange(span.start, min(span.stop, span.start + HEAD_NBYTES))
    yield ByteRange(max(span.start, span.stop - TAIL_NBYTES), span.stop)


def _joined(spans: Iterable[ByteRange]) -> list[ByteRange]:
    """Return spans in order; those that touch each other are one."""
    joined: list[ByteRange] = []
    for span in sorted(spans, key=lambda span: span.start):
        if joined and span.start <= joined[-1].stop:
            joined[-1] = ByteRange(joined[-1].start, max(joined[-1].stop, span.stop))
        elif len(span):
            joined.append(span)
    return joined

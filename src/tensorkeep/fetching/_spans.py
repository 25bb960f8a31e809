"""Sets of byte ranges. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tensorkeep.transport import ByteRange


def joined(spans: Iterable[ByteRange]) -> list[ByteRange]:
    """Return the same bytes in as few ranges as possible, in order."""
    found: list[ByteRange] = []
    for span in sorted((span for span in spans if len(span)), key=lambda span: span.start):
        if found and span.start <= found[-1].stop:
            found[-1] = ByteRange(found[-1].start, max(found[-1].stop, span.stop))
        else:
            found.append(span)
    return found


def without(spans: Iterable[ByteRange], removed: Iterable[ByteRange]) -> list[ByteRange]:
    """Return the bytes of one set that are not in another."""
    holes = joined(removed)
    found: list[ByteRange] = []
    for span in joined(spans):
        start = span.start
        for hole in holes:
            if hole.stop <= start or hole.start >= span.stop:
                continue
            if hole.start > start:
                found.append(ByteRange(start, hole.start))
            start = hole.stop
        if start < span.stop:
            found.append(ByteRange(start, span.stop))
    return found


def cut(spans: Iterable[ByteRange], nbytes: int) -> Iterator[ByteRange]:
    """Yield the same bytes in ranges of at most `nbytes`."""
    for span in spans:
        for start in range(span.start, span.stop, nbytes):
            yield ByteRange(start, min(start + nbytes, span.stop))

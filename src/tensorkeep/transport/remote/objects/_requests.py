"""Plans which ranges of bytes to request from a server. Pure.

A request costs as much as transferring some bytes. So neighboring ranges share a request: with the gap between them
if it is small, or as several ranges of one request if the server supports that. Large ranges are split, to be
requested in parallel.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from tensorkeep.transport.sources import ByteRange

PART_GAP_NBYTES: Final = 2**9
"""Unwanted bytes that cost no more than a second range in the same request."""

MAX_RANGES: Final = 200
"""Ranges of one request; Apache sends the whole file if asked for more (its MaxRanges)."""

MAX_SCATTERED_NBYTES: Final = 2**22
"""Bytes of a request for several ranges; more is faster in parallel requests."""


class Wanted(msgspec.Struct, frozen=True):
    """Part of a wanted range.

    Attributes:
        start: First byte, in the object.
        nbytes: Length.
        number: Index of the range it belongs to.
        offset: First byte, in that range.
    """

    start: int
    nbytes: int
    number: int
    offset: int = 0

    @property
    def stop(self) -> int:
        """One past the last byte."""
        return self.start + self.nbytes


class Request(msgspec.Struct, frozen=True):
    """One request.

    Attributes:
        spans: The ranges to ask for, half-open, in order, not adjacent.
        wanted: The parts they bring, in order, without overlaps.
    """

    spans: tuple[ByteRange, ...]
    wanted: tuple[Wanted, ...]

    @property
    def nbytes(self) -> int:
        """Bytes to ask for."""
        return sum(map(len, self.spans))


def plan_requests(
    spans: Iterable[ByteRange], *, max_gap_nbytes: int, max_nbytes: int, takes_many: bool = False
) -> list[Request]:
    """Plan the requests for some ranges."""
    parts = sorted(_cut(spans, max_nbytes), key=lambda part: (part.start, part.stop))
    max_gap = min(max_gap_nbytes, PART_GAP_NBYTES) if takes_many else max_gap_nbytes
    max_ranges = MAX_RANGES if takes_many else 1
    requests: list[Request] = []
    group = _Group(max_gap, max_nbytes, max_ranges)
    for part in parts:
        if not group.takes(part):
            requests.append(group.request())
            group = _Group(max_gap, max_nbytes, max_ranges)
            group.takes(part)
    return [*requests, group.request()] if group.wanted else requests


class _Group:
    """A request while it is assembled."""

    def __init__(self, max_gap: int, max_nbytes: int, max_ranges: int) -> None:
        self._max_gap, self._max_nbytes, self._max_ranges = max_gap, max_nbytes, max_ranges
        self._spans: list[tuple[int, int]] = []
        self._nbytes = 0
        self.wanted: list[Wanted] = []

    def takes(self, part: Wanted) -> bool:
        """Add a part if it fits."""
        start, stop = self._spans[-1] if self._spans else (part.start, part.start)
        gap = part.start - stop
        if 0 <= gap <= self._max_gap and self._nbytes + gap + part.nbytes <= self._limit(len(self._spans)):
            self._spans[-1:] = [(start, part.stop)]
            self._nbytes += gap + part.nbytes
        elif (
            gap >= 0
            and len(self._spans) < self._max_ranges
            and self._nbytes + part.nbytes <= self._limit(len(self._spans) + 1)
        ):
            self._spans.append((part.start, part.stop))
            self._nbytes += part.nbytes
        else:
            return False
        self.wanted.append(part)
        return True

    def _limit(self, n_spans: int) -> int:
        return self._max_nbytes if n_spans < 2 else min(self._max_nbytes, MAX_SCATTERED_NBYTES)

    def request(self) -> Request:
        return Request(tuple(ByteRange(start, stop) for start, stop in self._spans), tuple(self.wanted))


def remaining(spans: Iterable[ByteRange], nbytes: int) -> tuple[ByteRange, ...]:
    """Return the end of some ranges: their last `nbytes` bytes."""
    left: list[ByteRange] = []
    for span in reversed(tuple(spans)):
        if not nbytes:
            break
        start = max(span.start, span.stop - nbytes)
        left.append(ByteRange(start, span.stop))
        nbytes -= span.stop - start
    return tuple(reversed(left))


def one_by_one(request: Request) -> list[Request]:
    """Split a request into one request per range."""
    return [
        Request((span,), tuple(part for part in request.wanted if span.start <= part.start < span.stop))
        for span in request.spans
    ]


def _cut(spans: Iterable[ByteRange], max_nbytes: int) -> Iterable[Wanted]:
    for number, span in enumerate(spans):
        for start in range(span.start, span.stop, max_nbytes):
            yield Wanted(start, min(max_nbytes, span.stop - start), number, start - span.start)

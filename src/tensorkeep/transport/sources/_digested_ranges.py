"""Ranges of a source with a digest each, found by position."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

import msgspec

from tensorkeep.digests import DIGEST_NBYTES
from tensorkeep.transport.sources._base import ByteRange


class DigestedRange(msgspec.Struct, frozen=True):
    """A range with a digest.

    Attributes:
        name: For messages.
        span: The range.
        digest: Its BLAKE3.
    """

    name: str
    span: ByteRange
    digest: bytes


class DigestedRanges(msgspec.Struct, frozen=True):
    """Ranges that do not overlap, in order; made of columns, since a file may have 100,000.

    Attributes:
        names: Of each, for messages.
        starts: First byte of each.
        stops: One past the last byte of each.
        digests: BLAKE3 of each, one after another.
    """

    names: Sequence[str]
    starts: Sequence[int]
    stops: Sequence[int]
    digests: bytes

    @classmethod
    def of(cls, spans: Mapping[str, ByteRange], digests: Mapping[str, bytes]) -> DigestedRanges:
        """Return some ranges by name."""
        starts, stops = [span.start for span in spans.values()], [span.stop for span in spans.values()]
        return cls(list(spans), starts, stops, b"".join(digests[name] for name in spans))

    def at(self, number: int) -> DigestedRange:
        """Return one of them."""
        digest = self.digests[number * DIGEST_NBYTES : (number + 1) * DIGEST_NBYTES]
        return DigestedRange(self.names[number], ByteRange(self.starts[number], self.stops[number]), digest)

    def within(self, start: int, stop: int) -> list[DigestedRange]:
        """Return those that lie completely inside a range."""
        numbers = range(bisect_left(self.starts, start), bisect_left(self.starts, stop))
        return [self.at(number) for number in numbers if self.stops[number] <= stop]

    def cut_at(self, position: int) -> int | None:
        """Return the number of the one that has a byte on both sides of a position."""
        number = bisect_left(self.starts, position) - 1
        return number if number >= 0 and position < self.stops[number] else None

"""Which ranges of bytes to ask a server for. Pure.

A request costs as much as some of the bytes that it brings. So neighbours are asked for together, with what lies
between them if that is little; and what is large is cut, so that several requests bring it side by side.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tensorkeep.transport._base import ByteRange

__all__ = ["Request", "Wanted", "plan_requests"]


class Wanted(msgspec.Struct, frozen=True):
    """Bytes that somebody wants.

    Attributes:
        start: First byte, in the object.
        nbytes: How many.
        number: Which of all parts it is.
        offset: Byte of that part at which it begins.
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
        span: The bytes that are asked for, half-open.
        wanted: What they are wanted for, in the order of their bytes; no two parts overlap.
    """

    span: ByteRange
    wanted: tuple[Wanted, ...]


def plan_requests(spans: Iterable[ByteRange], *, max_gap_nbytes: int, max_nbytes: int) -> list[Request]:
    """Plan the requests that bring some ranges.

    Args:
        spans: What is wanted, in any order; empty ones cost nothing.
        max_gap_nbytes: Unwanted bytes between two wanted ranges up to which one request brings both.
        max_nbytes: Bytes of one request; a longer range is cut into several.

    Returns:
        Requests in the order of their first bytes, none longer than `max_nbytes`. Together they hold every wanted
        byte, those that are wanted twice as often.
    """
    parts = sorted(_cut(spans, max_nbytes), key=lambda part: (part.start, part.stop))
    requests: list[Request] = []
    group: list[Wanted] = []
    for part in parts:
        if group and not (
            0 <= part.start - group[-1].stop <= max_gap_nbytes and part.stop - group[0].start <= max_nbytes
        ):
            requests.append(_request(group))
            group = []
        group.append(part)
    if group:
        requests.append(_request(group))
    return requests


def _cut(spans: Iterable[ByteRange], max_nbytes: int) -> Iterable[Wanted]:
    for number, span in enumerate(spans):
        for start in range(span.start, span.stop, max_nbytes):
            yield Wanted(start, min(max_nbytes, span.stop - start), number, start - span.start)


def _request(group: list[Wanted]) -> Request:
    return Request(ByteRange(group[0].start, group[-1].stop), tuple(group))

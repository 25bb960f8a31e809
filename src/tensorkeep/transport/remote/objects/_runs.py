"""Runs of equal length all over an object, such as the columns of a matrix, as requests of several ranges. Pure.

A matrix of 100,000 rows has as many runs; here each of them costs a microsecond or two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tensorkeep.transport.remote.objects._requests import MAX_RANGES, MAX_SCATTERED_NBYTES
from tensorkeep.transport.sources import ByteRange


class RunsRequest(msgspec.Struct, frozen=True):
    """One request for several runs.

    Attributes:
        spans: The ranges that are asked for.
        start: Where the bytes of the first belong in the memory of all runs; those of the others follow.
        stop: Where the last of them ends there.
    """

    spans: tuple[ByteRange, ...]
    start: int
    stop: int


def plan_runs(starts: Sequence[int], nbytes: int, *, known_nbytes: int, max_nbytes: int) -> Iterator[RunsRequest]:
    """Plan the requests that bring runs."""
    n_together = max(1, min(MAX_RANGES, min(max_nbytes, MAX_SCATTERED_NBYTES) // nbytes))
    first = sum(start + nbytes <= known_nbytes for start in starts) if starts[0] < known_nbytes else 0
    for begin in range(first, len(starts), n_together):
        group = starts[begin : begin + n_together]
        skipped = max(0, known_nbytes - group[0])
        spans = (
            ByteRange(group[0] + skipped, group[0] + nbytes),
            *(ByteRange(start, start + nbytes) for start in group[1:]),
        )
        yield RunsRequest(spans, begin * nbytes + skipped, (begin + len(group)) * nbytes)

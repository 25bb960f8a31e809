"""Plans requests for many runs of equal length, such as columns of a matrix. Pure.

A matrix of 100,000 rows has 100,000 runs, so a run must cost no more than a microsecond or two here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tensorkeep.transport.remote.objects._requests import MAX_RANGES, MAX_SCATTERED_NBYTES
from tensorkeep.transport.sources import ByteRange


class RunsRequest(msgspec.Struct, frozen=True):
    """One request for several runs.

    Attributes:
        spans: The ranges to ask for.
        start: Where their bytes begin in the memory for all runs.
        stop: Where they end there.
    """

    spans: tuple[ByteRange, ...]
    start: int
    stop: int


def plan_runs(starts: Sequence[int], nbytes: int, *, known_nbytes: int, max_nbytes: int) -> Iterator[RunsRequest]:
    """Plan requests for runs, except the first `known_nbytes` of the object."""
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

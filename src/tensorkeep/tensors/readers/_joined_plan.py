"""The plans of reads from several sources as one. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from tensorkeep.tensors.readers._base import Planned
from tensorkeep.transport import ByteRange, JoinedSource


def joined_plan(planned: Iterable[Planned], path: str = "several sources") -> Planned:
    """Return what several reads would read, as ranges of one source in which theirs lie one after another."""
    planned = list(planned)
    sources = {id(source): source for source, _ in planned}
    ends = accumulate(source.nbytes for source in sources.values())
    begin = {key: end - source.nbytes for (key, source), end in zip(sources.items(), ends, strict=True)}
    together = JoinedSource([(source, ByteRange(0, source.nbytes)) for source in sources.values()], path)
    return together, [
        [ByteRange(begin[id(source)] + span.start, begin[id(source)] + span.stop) for span in batch]
        for source, batches in planned
        for batch in batches
    ]

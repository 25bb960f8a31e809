"""Plans the requests that a source would make to read some ranges."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tensorkeep.limits import READ_NBYTES
from tensorkeep.transport.remote import RemoteSource, plan_requests
from tensorkeep.transport.sources import ByteRange, ByteSource, JoinedSource, VerifyingSource


class PlannedRequest(msgspec.Struct, frozen=True):
    """A planned request, or read of a local file.

    Attributes:
        path: The file or URL.
        ranges: The byte ranges, half-open, in order, not adjacent; for a local file always one.
    """

    path: str
    ranges: tuple[ByteRange, ...]

    @property
    def nbytes(self) -> int:
        """Bytes to read."""
        return sum(map(len, self.ranges))


def requests_for(source: ByteSource, spans: Iterable[ByteRange]) -> list[PlannedRequest]:
    """Return the requests for some ranges that are read together."""
    if isinstance(source, VerifyingSource):
        return requests_for(source.inner, source.widened(spans))
    if isinstance(source, JoinedSource):
        return _for_parts(source, spans)
    if isinstance(source, RemoteSource):
        planned = source.plan(map(source.unknown, spans))
    else:
        planned = plan_requests(spans, max_gap_nbytes=0, max_nbytes=READ_NBYTES)
    return [PlannedRequest(source.name, request.spans) for request in planned]


def _for_parts(source: JoinedSource, spans: Iterable[ByteRange]) -> list[PlannedRequest]:
    by_source: dict[int, tuple[ByteSource, list[ByteRange]]] = {}
    for span in spans:
        for inner, part in source.split(span) if len(span) else ():
            by_source.setdefault(id(inner), (inner, []))[1].append(part)
    return [request for inner, parts in by_source.values() for request in requests_for(inner, parts)]

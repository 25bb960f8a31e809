"""What a read would cost: its requests and their bytes."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tensorkeep.entries import TensorEntry
from tensorkeep.tensors.indexing import Selection, parse_index
from tensorkeep.tensors.readers._base import Reader
from tensorkeep.transport import ByteRange, ByteSource, PlannedRequest, requests_for


class ReadPlan(msgspec.Struct, frozen=True):
    """What a read would cost; `print` says it in one line.

    A mapped file has no requests: for it, the ranges of bytes that would be touched are listed.

    Attributes:
        requests: The requests, in the order in which they would begin; many would run at once.
        wanted_nbytes: Bytes of the elements that are wanted, in the dtype of the file.
    """

    requests: tuple[PlannedRequest, ...]
    wanted_nbytes: int

    @property
    def n_requests(self) -> int:
        """The number of requests."""
        return len(self.requests)

    @property
    def nbytes(self) -> int:
        """Bytes that would be read, wanted or not."""
        return sum(request.nbytes for request in self.requests)

    def __str__(self) -> str:
        requests = "1 request" if self.n_requests == 1 else f"{self.n_requests:,} requests"
        return f"{requests}, {self.nbytes:,} bytes for {self.wanted_nbytes:,} that are wanted"


def plan_reads(
    whole: Iterable[tuple[Reader, TensorEntry]], parts: Iterable[tuple[Reader, TensorEntry, Selection]]
) -> ReadPlan:
    """Plan reads."""
    requests: list[PlannedRequest] = []
    wanted_nbytes = 0
    together: dict[int, tuple[ByteSource, list[ByteRange]]] = {}
    for reader, entry in whole:
        wanted_nbytes += entry.nbytes
        source, batches = reader.plan(entry, parse_index(..., entry.shape))
        together.setdefault(id(source), (source, []))[1].extend(span for batch in batches for span in batch)
    for source, spans in together.values():
        requests += requests_for(source, spans)
    for reader, entry, selection in parts:
        source, batches = reader.plan(entry, selection)
        dtype = entry.known_dtype  # blocks of quantized numbers have none, and are wanted whole
        planned_nbytes = sum(len(span) for batch in batches for span in batch)
        wanted_nbytes += planned_nbytes if dtype is None else dtype.nbytes(selection.n_elements)
        for batch in batches:
            requests += requests_for(source, batch)
    return ReadPlan(tuple(requests), wanted_nbytes)

"""An object in a store as a byte source: read by range requests, always of one version."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, Final, NamedTuple

from tensorkeep.buffers import Buffer
from tensorkeep.errors import TransientError, TransportError
from tensorkeep.parallel import Workers, parallel_for_each
from tensorkeep.transport.remote.objects import (
    PART_GAP_NBYTES,
    PROGRESS_NBYTES,
    ManyRefusedError,
    Opening,
    RemoteObject,
    RemoteOptions,
    Request,
    RunsRequest,
    Stream,
    Version,
    changed,
    copy_range,
    gone_is_changed,
    one_by_one,
    plan_requests,
    plan_runs,
    remaining,
    whole_file_too_large,
)
from tensorkeep.transport.sources import ByteRange

_MAX_OPEN: Final = 64
"""Parallel requests of the whole process."""

_turns = threading.BoundedSemaphore(_MAX_OPEN)

_STEP_NBYTES: Final = 2**20
"""Bytes per read: those received before a connection was cut are not requested again."""

_MAX_KEPT_NBYTES: Final = 2**25
"""Bytes of one read that are kept; headers are shorter."""

_PIECE_NBYTES: Final = 2**22


def _reset_turns() -> None:
    """Forget requests that ran when this process was forked: no thread here will finish them."""
    global _turns  # noqa: PLW0603
    _turns = threading.BoundedSemaphore(_MAX_OPEN)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_turns)


class _Known(NamedTuple):
    """Bytes of an object that are in memory, from byte `start` on."""

    start: int
    data: Buffer

    def holds(self, span: ByteRange) -> bool:
        return self.start <= span.start <= span.stop <= self.start + len(self.data)

    def fill(self, offset: int, into: memoryview) -> memoryview:
        """Fill memory that is meant for the bytes from `offset` on, and return what of it is left to fill."""
        skipped = offset - self.start
        data = memoryview(self.data).cast("B")[skipped : skipped + len(into)] if skipped >= 0 else memoryview(b"")
        into[: len(data)] = data
        return into[len(data) :]


_NOTHING: Final = _Known(0, b"")


class RemoteSource:
    """An open object: its size and version are known, and all bytes are of that version.

    The first request also brings the first bytes, which are kept: they contain the header of most files. What `read`
    returns is kept, too, until tensors are read: headers, and the end of an archive, are read twice.
    """

    def __init__(self, remote: RemoteObject, options: RemoteOptions, opening: Opening | None = None) -> None:
        self._remote = remote
        self._options = options
        self._is_closed = False
        self.name = remote.name
        self.opening = opening or self._options.patience().try_again(self._open)
        self._version = self.opening.version
        self._known = (_Known(0, self.opening.head), _NOTHING)
        self.nbytes = self._version.nbytes

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self._remote, self._options, self._version)

    def _open(self) -> Opening:
        with _turns:
            return self._remote.open(self._options.head_nbytes, max_whole_nbytes=self._options.whole_nbytes)

    def _refuse_without_ranges(self) -> None:
        if not self.opening.serves_ranges:
            raise whole_file_too_large(self.name, self.nbytes, self._options.whole_nbytes)

    @property
    def version(self) -> Version:
        """The version that all bytes are of."""
        return self._version

    def map(self, span: ByteRange) -> tuple[Buffer, int] | None:  # noqa: ARG002 - the protocol's
        """Return None: there is nothing to map; see `ByteSource.map`."""
        return None

    def read(self, span: ByteRange) -> Buffer:
        """Return the bytes of a range."""
        is_known = any(each.holds(span) for each in self._known)
        if not (is_known or self.opening.serves_ranges):
            self._read_beginning(span.stop)
        data = self._read(span)
        if not is_known and len(span) <= _MAX_KEPT_NBYTES:
            self._known = self._known[0], _Known(span.start, bytes(data))
        return data

    def _read_beginning(self, stop: int) -> None:
        """Keep the first bytes, as a header needs them: a response without ranges begins with them."""
        if stop > self._options.whole_nbytes:
            self._refuse_without_ranges()
        data = bytearray(stop)

        def attempt() -> None:
            places = deque([memoryview(data)])
            self._fill(places, (ByteRange(0, stop),))
            if places:
                raise TransientError("the answer ended early", path=self.name)

        self._options.patience().try_again(attempt)
        self._known = _Known(0, data), _NOTHING

    def _read(self, span: ByteRange) -> bytearray:
        data = bytearray(len(span))
        self._fill_all([(span.start, memoryview(data))])
        return data

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of a range in order, and request some MiB ahead."""
        step = min(_PIECE_NBYTES, self._options.request_nbytes)
        spans = [ByteRange(start, min(start + step, span.stop)) for start in range(span.start, span.stop, step)]
        yield from _in_order(spans, self._read, self._options.connections // 4 or 1)

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers with parallel requests."""
        self._known = self._known[0], _NOTHING
        self._fill_all(parts)

    def _fill_all(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        spans, buffers = [], []
        known = self._known
        for offset, into in parts:
            rest = into.cast("B")
            for each in known:
                rest = each.fill(offset + len(into) - len(rest), rest)
            spans.append(ByteRange(offset + len(into) - len(rest), offset + len(into)))
            buffers.append(rest)
        requests = self.plan(spans)
        if requests and self._is_closed:
            raise TransportError("the file is closed", path=self.name)
        if requests:
            self._refuse_without_ranges()
        requests = self._after_trying_many(requests, spans, buffers)
        parallel_for_each(
            requests, lambda each: self._carry_out_surely(each, buffers), n_threads=self._options.connections
        )

    @property
    def gap_nbytes(self) -> int:
        """Small if one request takes several ranges, because another range costs little then."""
        most = self._options.gap_nbytes
        return min(most, PART_GAP_NBYTES) if self._remote.takes_many else most

    def plan(self, spans: Iterable[ByteRange]) -> list[Request]:
        """Return the requests for some ranges, ignoring what is in memory."""
        return plan_requests(
            spans,
            max_gap_nbytes=self._options.gap_nbytes,
            max_nbytes=self._options.request_nbytes,
            takes_many=self._remote.takes_many,
        )

    def unknown(self, span: ByteRange) -> ByteRange:
        """Return the part of a range that is not in memory: its end, or all of it."""
        start = span.start
        for each in self._known:
            if each.start <= start < each.start + len(each.data):
                start = min(span.stop, each.start + len(each.data))
        return ByteRange(start, span.stop)

    def _after_trying_many(
        self, requests: list[Request], spans: list[ByteRange], buffers: list[memoryview]
    ) -> list[Request]:
        """Make the first request of several ranges before all others, and return what is left to do.

        A server that does not serve several gives the whole file, or one of them: this happens once.
        """
        first = next((request for request in requests if len(request.spans) > 1), None)
        if first is None:
            return requests
        try:
            self._carry_out(first.spans, _places(first, buffers))
        except ManyRefusedError:
            return self.plan(spans)
        return [request for request in requests if request is not first]

    def _carry_out_surely(self, request: Request, buffers: list[memoryview]) -> None:
        """Make a request; if the server takes its ranges only one by one, do that."""
        try:
            self._carry_out(request.spans, _places(request, buffers))
        except ManyRefusedError:
            for each in one_by_one(request):
                self._carry_out(each.spans, _places(each, buffers))

    def read_runs(self, starts: Sequence[int], nbytes: int, into: memoryview) -> bool:
        """Fill memory with runs of equal length, one after another; see `RunSource`."""
        if self._is_closed or not self._remote.takes_many:
            return False
        self._known = self._known[0], _NOTHING
        head = self._known[0]
        for place, start in enumerate(starts):
            if start >= len(head.data):
                break
            head.fill(start, into[place * nbytes : (place + 1) * nbytes])
        planned = plan_runs(
            starts, nbytes, known_nbytes=len(head.data), max_nbytes=max(nbytes, self._options.request_nbytes)
        )

        def carry_out(request: RunsRequest) -> None:
            self._carry_out(request.spans, deque([into[request.start : request.stop]]))

        try:
            for request in islice(planned, 1):  # alone: if the server does not serve it, the others are not asked for
                carry_out(request)
            parallel_for_each(list(planned), carry_out, n_threads=self._options.connections)
        except ManyRefusedError:
            return False
        return True

    def _carry_out(self, spans: tuple[ByteRange, ...], places: deque[memoryview]) -> None:
        """Make a request, fill its places, and continue where it was cut off."""
        patience = self._options.patience()
        while places:
            missing = sum(map(len, places))
            error: TransientError | None = None
            try:
                self._fill(places, remaining(spans, missing))
            except TransientError as cause:
                error = cause
            if missing - sum(map(len, places)) >= PROGRESS_NBYTES:
                patience.reset()
            if places:
                patience.fail(error or TransientError("the answer ended early", path=self.name))

    def _fill(self, places: deque[memoryview], spans: tuple[ByteRange, ...]) -> None:
        """Fill places with the bytes of one response, and remove those that are full."""
        with gone_is_changed(self.name, self._version), _turns, closing(self._stream(spans)) as stream:
            while places:
                n_read = stream.read_into(places[0][:_STEP_NBYTES])
                if not n_read:
                    return
                if n_read == len(places[0]):
                    places.popleft()
                else:
                    places[0] = places[0][n_read:]

    def copy_to(self, span: ByteRange, buffer: memoryview, write: Callable[[int, memoryview], None]) -> None:
        """Pass on the bytes of a range as they come, and continue where a response was cut off."""
        copy_range(
            self._remote,
            self._version,
            span,
            buffer,
            write,
            patience=self._options.patience(),
            continues=self.opening.serves_ranges,
            turn=_turns,
        )

    def _stream(self, spans: tuple[ByteRange, ...]) -> Stream:
        if len(spans) == 1:
            return self._remote.stream(spans[0], self._version)
        return self._remote.stream_many(spans, self._version)

    def close(self) -> None:
        """Close the object; what was read stays valid."""
        self._is_closed = True
        self._known = (_NOTHING, _NOTHING)
        self.opening = Opening(self._version, b"")


def _reopened(remote: RemoteObject, options: RemoteOptions, version: Version) -> RemoteSource:
    source = RemoteSource(remote, options)
    if not version.is_same(source.opening.version):
        raise changed(source.name, version, source.opening.version)
    return source


def _places(request: Request, buffers: list[memoryview]) -> deque[memoryview]:
    """Return the memory for the bytes of a request, in order; gaps go to scratch memory."""
    places: deque[memoryview] = deque()
    ends = {span.start: span.start for span in request.spans}
    gaps = [part.start - ends.get(part.start, end) for part, end in zip(request.wanted, _ends(request), strict=False)]
    waste = memoryview(bytearray(max(gaps)))
    for part, gap in zip(request.wanted, gaps, strict=True):
        if gap:
            places.append(waste[:gap])
        places.append(buffers[part.number][part.offset : part.offset + part.nbytes])
    return places


def _ends(request: Request) -> list[int]:
    """Return where the part before each part ends."""
    return [request.spans[0].start, *(part.stop for part in request.wanted)]


def _in_order(spans: list[ByteRange], read: Callable[[ByteRange], Buffer], n_ahead: int) -> Iterator[Buffer]:
    """Yield the bytes of each range in order, and read some ranges ahead."""
    with Workers(n_ahead, "tensorkeep-read") as threads:
        coming = [threads.submit(read, span) for span in spans[:n_ahead]]
        try:
            for place in range(len(spans)):
                data = coming.pop(0).result()
                if place + n_ahead < len(spans):
                    coming.append(threads.submit(read, spans[place + n_ahead]))
                yield data
        finally:
            for future in coming:
                future.cancel()

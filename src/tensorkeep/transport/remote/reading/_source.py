"""An object in a store as a source of bytes: read here and there, by many requests, always the same version."""

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
from tensorkeep.transport._threads import for_all
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
"""Requests of the whole process that are under way at a time."""

_turns = threading.BoundedSemaphore(_MAX_OPEN)

_STEP_NBYTES: Final = 2**20
"""Bytes that are waited for at a time: those that came before a connection was cut are not asked for again."""

_MAX_KEPT_NBYTES: Final = 2**25
"""Bytes of one read that are kept: all honest headers are shorter."""

_PIECE_NBYTES: Final = 2**22


def _start_anew() -> None:
    """Forget the requests that were under way when this process was forked: no thread here will end them."""
    global _turns  # noqa: PLW0603
    _turns = threading.BoundedSemaphore(_MAX_OPEN)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)


class _Known(NamedTuple):
    """Bytes of an object that are here already, from byte `start` on."""

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
    """An object, opened: its size and its version are known, and all that is read is of that version.

    The first request brings the first bytes too, which are kept: they hold the header of most files. What `read`
    brings is kept as well, until tensors are read: a header is looked at twice, and so is the end of an archive.
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
        if options.needs_ranges:
            self._refuse_without_ranges()

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
        data = self._read(span)
        if not is_known and len(span) <= _MAX_KEPT_NBYTES:
            self._known = self._known[0], _Known(span.start, bytes(data))
        return data

    def _read(self, span: ByteRange) -> bytearray:
        data = bytearray(len(span))
        self._fill_all([(span.start, memoryview(data))])
        return data

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:
        """Give the bytes of a range in order; some MiB are on their way while one piece is looked at."""
        step = min(_PIECE_NBYTES, self._options.request_nbytes)
        spans = [ByteRange(start, min(start + step, span.stop)) for start in range(span.start, span.stop, step)]
        yield from _in_order(spans, self._read, self._options.connections // 4 or 1)

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers, by as many requests at a time as `RemoteOptions` allows."""
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
        for_all(requests, lambda each: self._carry_out_surely(each, buffers), n_threads=self._options.connections)

    @property
    def gap_nbytes(self) -> int:
        """See `ByteSource`; where one request takes several ranges, these cost little."""
        most = self._options.gap_nbytes
        return min(most, PART_GAP_NBYTES) if self._remote.takes_many else most

    def plan(self, spans: Iterable[ByteRange]) -> list[Request]:
        """Return the requests that would bring some ranges, if nothing of them were here."""
        return plan_requests(
            spans,
            max_gap_nbytes=self._options.gap_nbytes,
            max_nbytes=self._options.request_nbytes,
            takes_many=self._remote.takes_many,
        )

    def unknown(self, span: ByteRange) -> ByteRange:
        """Return what of a range would have to be asked for: its end, or all of it."""
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
            for_all(list(planned), carry_out, n_threads=self._options.connections)
        except ManyRefusedError:
            return False
        return True

    def _carry_out(self, spans: tuple[ByteRange, ...], places: deque[memoryview]) -> None:
        """Make a request, whose bytes go where they are wanted; go on where it was cut off."""
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
        """Fill places from the first, as far as the bytes of one answer go; take away what was filled."""
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
        """Hand over the bytes of a range as they come, by one request that goes on where it was cut off."""
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
        """Let go of the object; what was read stays valid."""
        self._is_closed = True
        self._known = (_NOTHING, _NOTHING)
        self.opening = Opening(self._version, b"")


def _reopened(remote: RemoteObject, options: RemoteOptions, version: Version) -> RemoteSource:
    source = RemoteSource(remote, options)
    if not version.is_same(source.opening.version):
        raise changed(source.name, version, source.opening.version)
    return source


def _places(request: Request, buffers: list[memoryview]) -> deque[memoryview]:
    """Return where the bytes of a request go, from its first to its last; what nobody wants is thrown away."""
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
    """Give the bytes of each range in turn, and read some ranges ahead."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(n_ahead, thread_name_prefix="tensorkeep-read") as threads:
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

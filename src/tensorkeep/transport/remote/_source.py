"""An object in a store as a source of bytes: read here and there, by many requests, always the same version."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from tensorkeep.buffers import Buffer
from tensorkeep.errors import SourceChangedError, TransportError
from tensorkeep.transport._base import ByteRange
from tensorkeep.transport.remote._base import Opening, RemoteObject, TransientError
from tensorkeep.transport.remote._requests import Request, plan_requests
from tensorkeep.transport.remote._retries import Patience

__all__ = ["Manner", "RemoteSource"]

_MAX_OPEN: Final = 64
"""Requests of the whole process that are under way at a time."""

_turns: Final = threading.BoundedSemaphore(_MAX_OPEN)


class Manner(msgspec.Struct, frozen=True):
    """How objects are read.

    Attributes:
        head_nbytes: Bytes that the first request asks for; the headers of most files are shorter.
        gap_nbytes: Unwanted bytes between two ranges up to which one request brings both.
        request_nbytes: Bytes of one request.
        connections: Requests of one read that are under way at a time.
        attempts: How often in a row a request may fail that may succeed if it is made again.
        whole_nbytes: Size up to which an object is read whole where the server serves no ranges.
    """

    head_nbytes: int = 2**17
    gap_nbytes: int = 2**14
    request_nbytes: int = 2**23
    connections: int = 16
    attempts: int = 6
    whole_nbytes: int = 2**26


class RemoteSource:
    """An object, opened: its size and its version are known, and all that is read is of that version.

    The first request brings the first bytes too, which are kept: they hold the header of most files.

    Args:
        remote: The object.
        manner: How it is read.

    Raises:
        RangeNotServedError: If the server serves no ranges, and the object is too large to read it whole.
        SourceMissingError: If there is no such object.
        AccessDeniedError: If the server does not let this user.
        TransportError: If it cannot be read.
    """

    def __init__(self, remote: RemoteObject, manner: Manner) -> None:
        """Make the first request; see the class."""
        self._remote = remote
        self._manner = manner
        self._is_closed = False
        self.name = remote.name
        opening = self._ask(lambda: remote.open(manner.head_nbytes, max_whole_nbytes=manner.whole_nbytes))
        self._version, self._head = opening.version, memoryview(opening.head).cast("B")
        self.nbytes = opening.version.nbytes

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what it was made of; it is opened anew, and must be the same version."""
        return _reopened, (self._remote, self._manner, self._version)

    def _ask(self, request: Callable[[], Opening]) -> Opening:
        with _turns:
            return Patience(self._manner.attempts).try_again(request)

    def map(self, span: ByteRange) -> tuple[Buffer, int] | None:  # noqa: ARG002 - the protocol's
        """Return None: there is nothing to map; see `ByteSource.map`."""
        return None

    def read(self, span: ByteRange) -> Buffer:
        """Return the bytes of a range.

        Args:
            span: Half-open, inside the source.

        Raises:
            SourceChangedError: If the object is another by now.
            TransportError: If it cannot be read.
        """
        data = bytearray(len(span))
        self.read_into([(span.start, memoryview(data))])
        return data

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:
        """Give the bytes of a range in order; some MiB are on their way while one piece is looked at.

        Args:
            span: Half-open, inside the source.

        Yields:
            Pieces that belong to the caller.

        Raises:
            SourceChangedError: If the object is another by now.
            TransportError: If it cannot be read.
        """
        step = self._manner.request_nbytes
        spans = [ByteRange(start, min(start + step, span.stop)) for start in range(span.start, span.stop, step)]
        yield from _in_order(spans, self.read, self._manner.connections // 4 or 1)

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers, by as many requests at a time as `Manner` allows.

        Args:
            parts: Byte offset in the source, and the writable bytes to fill from there.

        Raises:
            SourceChangedError: If the object is another by now.
            TransportError: If it cannot be read.
        """
        spans, buffers = [], []
        for offset, into in parts:
            rest = self._from_head(offset, into.cast("B"))
            spans.append(ByteRange(offset + len(into) - len(rest), offset + len(into)))
            buffers.append(rest)
        manner = self._manner
        requests = plan_requests(spans, max_gap_nbytes=manner.gap_nbytes, max_nbytes=manner.request_nbytes)
        if requests and self._is_closed:
            raise TransportError("the file is closed", path=self.name)
        _side_by_side(requests, lambda request: self._carry_out(request, buffers), manner.connections)

    def _from_head(self, offset: int, into: memoryview) -> memoryview:
        """Fill what the first request has brought already, and return what is left to fill."""
        known = max(0, min(len(self._head) - offset, len(into)))
        into[:known] = self._head[offset : offset + known]
        return into[known:]

    def _carry_out(self, request: Request, buffers: list[memoryview]) -> None:
        """Make a request, and hand its bytes out as they come; go on where it was cut off."""
        patience = Patience(self._manner.attempts)
        start = request.span.start
        while start < request.span.stop:
            before = start
            error = TransientError("the answer ended early", path=self.name)
            try:
                for chunk in self._chunks(ByteRange(start, request.span.stop)):
                    _hand_out(chunk, start, request, buffers)
                    start += len(chunk)
            except TransientError as cause:
                error = cause
            if start > before:
                patience.restore()
            if start < request.span.stop:
                patience.lose(error)

    def _chunks(self, span: ByteRange) -> Iterator[memoryview]:
        with _turns:
            for chunk in self._remote.chunks(span, self._version):
                with memoryview(chunk) as view:
                    yield view.cast("B")

    def close(self) -> None:
        """Let go of the object; what was read stays valid."""
        self._is_closed = True
        self._head = memoryview(b"")


def _reopened(remote: RemoteObject, manner: Manner, version: Any) -> RemoteSource:
    source = RemoteSource(remote, manner)
    if source._version != version:
        raise SourceChangedError("the file is another than it was", path=source.name)
    return source


def _hand_out(chunk: memoryview, start: int, request: Request, buffers: list[memoryview]) -> None:
    """Copy what came, which begins at byte `start`, to where it is wanted."""
    stop = start + len(chunk)
    if stop > request.span.stop:
        raise TransientError("the answer is longer than what was asked for")
    for part in request.wanted:
        first, last = max(part.start, start), min(part.stop, stop)
        if first < last:
            begin = part.offset + first - part.start
            buffers[part.number][begin : begin + last - first] = chunk[first - start : last - start]


def _side_by_side(requests: list[Request], carry_out: Callable[[Request], None], n_threads: int) -> None:
    """Carry requests out, some at a time; the first that fails ends the others."""
    waiting = iter(requests)
    lock = threading.Lock()
    failures: list[BaseException] = []

    def work() -> None:
        while not failures:
            with lock:
                request = next(waiting, None)
            if request is None:
                return
            try:
                carry_out(request)
            except BaseException as error:  # noqa: BLE001 - raised again below
                failures.append(error)

    n_others = min(n_threads, len(requests)) - 1
    threads = [threading.Thread(target=work, name="tensorkeep-read") for _ in range(n_others)]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    if failures:
        try:
            raise failures[0]
        finally:
            failures.clear()


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

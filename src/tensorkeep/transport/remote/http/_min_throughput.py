"""How slowly an answer may come: a server that sends a byte now and then must not hold anybody up."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import socket
    from http.client import HTTPResponse

    from _typeshed import WriteableBuffer


_LEAST_NBYTES: Final = 2**14
"""Bytes of a body that must come while as many seconds are waited as a request has."""


class ThroughputGuard:
    """What is waited for on one connection. Only waiting counts, and not what the caller does meanwhile."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._deadline: float | None = None
        self._waited_s = 0.0
        self._nbytes = 0

    @contextmanager
    def all_within(self, connection: socket.socket | None, seconds: float) -> Iterator[None]:
        """Let all that is waited for in the block be there in some seconds, however much it is."""
        before = connection.gettimeout() if connection is not None else None
        if connection is not None and before is not None:
            connection.settimeout(min(seconds, before))
        self._deadline = time.monotonic() + seconds
        try:
            yield
        finally:
            self._deadline, self._waited_s, self._nbytes = None, 0.0, 0
            if connection is not None and before is not None:
                connection.settimeout(before)

    def response(self, *arguments: Any, **options: Any) -> HTTPResponse:
        """Return what `http.client` reads an answer by, with this pace."""
        from http.client import HTTPResponse

        response = HTTPResponse(*arguments, **options)
        response.fp = io.BufferedReader(_Paced(response.fp.detach(), self))
        return response

    def count(self, nbytes: int, since: float) -> None:
        """Count bytes that came."""
        now = time.monotonic()
        if self._deadline is not None:
            if now > self._deadline:
                raise TimeoutError(None, "too slow")
            return
        self._waited_s += now - since
        self._nbytes += nbytes
        if self._nbytes >= _LEAST_NBYTES:
            self._waited_s, self._nbytes = 0.0, 0
        elif nbytes and self._waited_s > self._timeout_s:
            raise TimeoutError(None, "too slow")


class _Paced(io.RawIOBase):
    """The bytes of a socket, at a pace."""

    def __init__(self, raw: io.RawIOBase, pace: ThroughputGuard) -> None:
        self._raw = raw
        self._pace = pace

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        since = time.monotonic()
        nbytes: int | None = self._raw.readinto(buffer)
        self._pace.count(nbytes or 0, since)
        return nbytes

    def close(self) -> None:
        self._raw.close()
        super().close()

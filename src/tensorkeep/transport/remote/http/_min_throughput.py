"""A time limit on slow answers: a server that sends a byte now and then must not hold up a read."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket
    from http.client import HTTPResponse

    from _typeshed import WriteableBuffer


_MIN_NBYTES: Final = 2**14
"""Bytes of a body that must come in each `timeout_s` of waiting: 550 bytes a second, at 30 seconds."""


class ThroughputGuard:
    """Raises `TimeoutError` if an answer is too slow; only waiting counts, not what the caller does meanwhile."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._deadline: float | None = None
        self._waited_s = 0.0
        self._nbytes = 0

    @contextmanager
    def all_within(self, connection: socket.socket | None, seconds: float) -> Iterator[None]:
        """Give everything that is read in the block a common deadline, however little that is."""
        before = connection.gettimeout() if connection is not None else None
        if connection is not None and before is not None:
            connection.settimeout(min(seconds, before))
        self._deadline = time.monotonic() + seconds
        try:
            yield
        finally:
            self._deadline = None
            if connection is not None and before is not None:
                connection.settimeout(before)

    def watch(self, response: HTTPResponse) -> None:
        """Guard all that is read of a response from now on."""
        response.fp = io.BufferedReader(_GuardedSocket(response.fp.detach(), self))

    def count(self, nbytes: int, since: float) -> None:
        """Count bytes that came, and the wait for them."""
        now = time.monotonic()
        if self._deadline is not None:
            if now > self._deadline:
                raise TimeoutError(None, "too slow")
            return
        self._waited_s += now - since
        self._nbytes += nbytes
        if self._nbytes >= _MIN_NBYTES:
            self._waited_s, self._nbytes = 0.0, 0
        elif nbytes and self._waited_s > self.timeout_s:
            raise TimeoutError(None, "too slow")


class _GuardedSocket(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, guard: ThroughputGuard) -> None:
        self._raw = raw
        self._guard = guard

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        since = time.monotonic()
        nbytes: int | None = self._raw.readinto(buffer)
        self._guard.count(nbytes or 0, since)
        return nbytes

    def close(self) -> None:
        self._raw.close()
        super().close()

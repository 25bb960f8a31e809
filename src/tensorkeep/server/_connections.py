"""Limits the number of connections.

A connection with an unanswered request stays open. An idle one, also before its first request, is closed to make room
for a new one; if all are busy, the new one gets a 503.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, cast
from weakref import WeakSet

if TYPE_CHECKING:
    from aiohttp import web


_DESCRIPTORS_EACH: Final = 3
"""The connection, its duplicate for the sending thread, and the file."""

_OTHER_DESCRIPTORS: Final = 64
_MAX_REFUSED: Final = 64
"""Most connections that get a 503 at the same time; more are closed without an answer."""

_REFUSAL_S: Final = 1.0
"""Seconds in which a client can read the 503."""

_TURNS: Final = 4
"""Turns of the event loop after which every connection accepted so far is known, and can be closed."""

_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nServer: tensorkeep\r\nRetry-After: 1\r\n"
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)


class Connections:
    """The connections of a server."""

    def __init__(self, server: web.Server, limit: int) -> None:
        self._server = server
        self._limit = limit
        self._busy: set[object] = set()
        self._n_refused = 0
        self._transports: WeakSet[asyncio.Transport] = WeakSet()

    def __call__(self) -> asyncio.Protocol:
        return _NewConnection(self)

    @contextmanager
    def busy(self, connection: object) -> Iterator[None]:
        """Keep a connection open while the block answers one of its requests."""
        self._busy.add(connection)
        try:
            yield
        finally:
            self._busy.discard(connection)

    def admit(self, transport: asyncio.Transport) -> bool:
        """Accept a new connection if there is room, or if an idle one can be closed."""
        self._transports.add(transport)
        present = [each for each in self._server.connections if each.connected]
        if len(present) >= self._limit:
            idle = next((each for each in present if each not in self._busy), None)
            if idle is None:
                return False
            idle.force_close()
        transport.set_write_buffer_limits(0)  # so that drained data has reached the system
        protocol = self._server()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        return True

    def refuse(self, transport: asyncio.Transport) -> None:
        """Tell a client to retry later, and give it time to read that."""
        if self._n_refused >= _MAX_REFUSED:
            transport.abort()
            return
        self._n_refused += 1
        transport.write(_FULL)
        transport.write_eof()
        asyncio.get_running_loop().call_later(_REFUSAL_S, self._close_refused, transport)

    async def end(self) -> None:
        """Close all connections, including those just being accepted, and wait until the loop has dropped them."""
        for _ in range(_TURNS):
            for transport in list(self._transports):
                transport.abort()
            await asyncio.sleep(0)

    def _close_refused(self, transport: asyncio.Transport) -> None:
        self._n_refused -= 1
        transport.abort()


class _NewConnection(asyncio.Protocol):
    """The protocol of a new connection: hands it to the server, or refuses it."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept or refuse it."""
        connection = cast("asyncio.Transport", transport)
        if not self._connections.admit(connection):
            self._connections.refuse(connection)


def affordable_connections(connections: int) -> int:
    """Return how many connections this process has descriptors for."""
    try:
        import resource
    except ImportError:
        return connections
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return connections
    return max(min(connections, (soft - _OTHER_DESCRIPTORS) // _DESCRIPTORS_EACH), 1)


def raise_descriptor_limit(connections: int) -> None:
    """Raise this process's limit of file descriptors to what the connections need, as far as the system allows."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = connections * _DESCRIPTORS_EACH + _OTHER_DESCRIPTORS
        if soft != resource.RLIM_INFINITY and soft < wanted:
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))

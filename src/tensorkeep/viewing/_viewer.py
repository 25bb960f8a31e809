"""The viewer: a socket, a thread with an event loop, and aiohttp, which speaks HTTP to a browser."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from tensorkeep.encryption import KeyLike, Keys
from tensorkeep.server import (
    BACKLOG,
    Connections,
    InThread,
    affordable_connections,
    check_aiohttp,
    check_port,
    host_of_url,
    is_loopback,
    listening_socket,
    terse_server,
)
from tensorkeep.viewing._guard import HEADERS, Guard
from tensorkeep.viewing._page import read_page
from tensorkeep.viewing._replies import Replies
from tensorkeep.viewing._shelf import Options, Shelf

if TYPE_CHECKING:
    from aiohttp import web

_MAX_CONNECTIONS: Final = 128
"""Connections at a time; browsers keep six each. Idle ones, also those that send no request, make room for others."""

_TOKEN_NBYTES: Final = 24

_GRACE_S: Final = 1.0
"""Seconds that running answers get when the viewer stops."""

_quiet = logging.getLogger("tensorkeep.viewing.http")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False  # clients may send what is not HTTP; that is not an error of the viewer


class Viewer(InThread):
    """Shows a checkpoint in a browser, in a thread, for the duration of the `with` block.

        with Viewer("run/") as viewer:
            webbrowser.open(viewer.url)

    Nothing is changed, and only the given paths can be seen. Everyone who has the URL can look: it holds a secret,
    which is new for each viewer.

    Args:
        path: What to show: a path or URL that `tensorkeep.open` takes, or the directory of a `CheckpointStore`.
        other: A second one, to compare with the first.
        host: The name or address to listen on.
        port: The port; 0 picks a free one.
        variant: Which checkpoint of a directory, such as `"fp16"`.
        engine: The library that reads the files instead of tensorkeep; see `tensorkeep.open`.
        key: The key of an encrypted checkpoint, the path of a file with it, or several of these. A single path must
            then be encrypted; of two, it applies to whichever is.

    Attributes:
        url: The URL of the page, with its secret.
        is_local: Whether only browsers on this machine can connect.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        other: str | os.PathLike[str] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        variant: str | None = None,
        engine: str | None = None,
        key: KeyLike | Sequence[KeyLike] | None = None,
    ) -> None:
        """Open what is to be shown and bind the port; requests are answered only inside the `with` block.

        Raises:
            SourceMissingError: If there is nothing at a path, or a shard is missing.
            IntegrityError: If a checkpoint is incomplete or damaged.
            EncryptedError: If it is encrypted with another key.
            FormatError: If a file cannot be parsed.
            LimitError: If a header, index or pickle exceeds a bound.
            UnsupportedError: If a path cannot be opened, or the port is invalid.
            TransportError: If a file cannot be read, or the port cannot be bound.
            MissingDependencyError: If aiohttp is not installed.
        """
        check_aiohttp("view")
        check_port(port)
        keys = Keys.given(key)
        if keys is not None and other is not None:
            keys = keys.optional()
        self._shelf = Shelf(path, other, Options(variant, engine, keys))
        super().__init__(listening_socket(host, port), "tensorkeep-view")
        address, bound = self._socket.getsockname()[:2]
        self.is_local = is_loopback(address)
        token = secrets.token_urlsafe(_TOKEN_NBYTES)
        self._replies = Replies(self._shelf, Guard(token, only_local=self.is_local), read_page())
        self.url = f"http://{host_of_url(host, address)}:{bound}/{token}/"

    def close(self) -> None:
        """Stop: what is running is cut, the port is freed, and the files are closed."""
        super().close()
        self._shelf.close()

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        server = terse_server(
            self._handle, HEADERS, handler_cancellation=True, logger=_quiet, lingering_time=_GRACE_S
        )
        self._connections = Connections(server, affordable_connections(_MAX_CONNECTIONS))
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(self._connections, sock=self._socket, backlog=BACKLOG)
        try:
            yield
        finally:
            listener.close()
            self._replies.stop()
            for each in server.connections:
                each.close()
            await server.shutdown(_GRACE_S)
            await self._connections.end()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        with self._connections.busy(request.protocol):
            return await self._replies.reply(request)

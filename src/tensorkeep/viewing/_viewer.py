"""The viewer: a socket, a thread with an event loop, and aiohttp, which speaks HTTP to a browser."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from tensorkeep.errors import MissingDependencyError, UnsupportedError
from tensorkeep.server import BACKLOG, host_of_url, is_loopback, listening_socket
from tensorkeep.viewing._guard import Guard
from tensorkeep.viewing._page import read_page
from tensorkeep.viewing._replies import Replies
from tensorkeep.viewing._shelf import Options, Shelf

if TYPE_CHECKING:
    from collections.abc import Callable


_TOKEN_NBYTES: Final = 24

_GRACE_S: Final = 1.0
"""Seconds that running answers get when the viewer stops."""

_quiet = logging.getLogger("tensorkeep.viewing.http")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False  # clients may send what is not HTTP; that is not an error of the viewer


class Viewer:
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
    ) -> None:
        """Open what is to be shown and bind the port; requests are answered only inside the `with` block.

        Raises:
            SourceMissingError: If there is nothing at a path, or a shard is missing.
            IntegrityError: If a checkpoint is incomplete or damaged.
            FormatError: If a file cannot be parsed.
            LimitError: If a header, index or pickle exceeds a bound.
            UnsupportedError: If a path cannot be opened, or the port is invalid.
            TransportError: If a file cannot be read, or the port cannot be bound.
            MissingDependencyError: If aiohttp is not installed.
        """
        _check_aiohttp()
        if not 0 <= port < 2**16:
            raise UnsupportedError("the port is invalid", expected="0 to 65,535", found=f"{port:,}")
        shelf = Shelf(path, other, Options(variant, engine))
        self._socket = listening_socket(host, port)
        address, bound = self._socket.getsockname()[:2]
        self.is_local = is_loopback(address)
        token = secrets.token_urlsafe(_TOKEN_NBYTES)
        self._replies = Replies(shelf, Guard(token, only_local=self.is_local), read_page())
        self.url = f"http://{host_of_url(host, address)}:{bound}/{token}/"
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        begun: Future[Callable[[], None]] = Future()
        self._thread = threading.Thread(target=self._run, args=(begun,), name="tensorkeep-view", daemon=True)
        self._thread.start()
        self._stop = begun.result()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the viewer: running work is stopped, and the port is freed."""
        if self._thread is None:
            self._socket.close()
            return
        self._stop()
        self._thread.join()

    def _run(self, begun: Future[Callable[[], None]]) -> None:
        try:
            asyncio.run(self._serve(begun))
        except BaseException as error:
            if not begun.done():
                begun.set_exception(error)
            raise
        finally:
            self._socket.close()

    async def _serve(self, begun: Future[Callable[[], None]]) -> None:
        from aiohttp import web

        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        server = web.Server(
            self._replies.reply, handler_cancellation=True, access_log=None, logger=_quiet, lingering_time=_GRACE_S
        )
        listener = await loop.create_server(server, sock=self._socket, backlog=BACKLOG)

        def stop() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(stopping.set)

        begun.set_result(stop)
        try:
            await stopping.wait()
        finally:
            listener.close()
            self._replies.stop()
            for each in server.connections:
                each.close()
            await server.shutdown(_GRACE_S)


def _check_aiohttp() -> None:
    try:
        import aiohttp  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            "aiohttp is needed to view", found=str(error), hint="pip install 'tensorkeep[view]'"
        ) from error

"""A server in a thread with an event loop of its own, for the duration of a `with` block."""

from __future__ import annotations

import asyncio
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from typing import Self


class InThread(ABC):
    """Runs in a thread; a subclass says what is served."""

    def __init__(self, listening: socket.socket, name: str) -> None:
        self._socket = listening
        self._thread_name = name
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        begun: Future[Callable[[], None]] = Future()
        self._thread = threading.Thread(target=self._run, args=(begun,), name=self._thread_name, daemon=True)
        self._thread.start()
        self._stop = begun.result()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop: what is running is cut, and the port is freed."""
        if self._thread is None:
            self._socket.close()
            return
        self._stop()
        self._thread.join()

    @abstractmethod
    def _serving(self) -> AbstractAsyncContextManager[None]:
        """Answer requests to the socket while this is entered."""

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
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        async with self._serving():
            begun.set_result(lambda: _call_in(loop, stopping.set))
            await stopping.wait()


def _call_in(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(callback)

"""The server: a socket, a thread with an event loop, and aiohttp, which speaks HTTP."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from time import perf_counter, time
from typing import TYPE_CHECKING, Any, Final, NoReturn

from tensorkeep.errors import SourceMissingError, UnsupportedError, as_transport_error
from tensorkeep.server._access import Access, is_loopback
from tensorkeep.server._aiohttp import check_aiohttp, terse_server
from tensorkeep.server._answers import HEADERS, Answer, Question, Site, answer_at_once, answer_to
from tensorkeep.server._body import CAN_ASK_MEMORY
from tensorkeep.server._connections import Connections, affordable_connections
from tensorkeep.server._in_thread import InThread
from tensorkeep.server._listening import BACKLOG, check_port, host_of_url, listening_socket
from tensorkeep.server._sending import Sending
from tensorkeep.server._served import Served
from tensorkeep.transport import local_path
from tensorkeep.transport.system import mapping_pays

if TYPE_CHECKING:
    from aiohttp import web


_GRACE_S: Final = 1.0
"""Seconds that running answers get when the server stops; bodies of files are cut at once."""

_IDLE_S: Final = 60.0
"""Seconds after which an idle connection is closed, at the latest."""

_log = logging.getLogger("tensorkeep.server")
_quiet = logging.getLogger("tensorkeep.server.http")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False  # clients may send what is not HTTP; that is not an error of this server


class Server(InThread):
    """Serves a directory over HTTP, read-only, in a thread, for the duration of the `with` block.

        with Server("runs", port=0) as server:
            tensorkeep.open(server.url + "model.safetensors")

    Files are served with ranges, strong ETags and conditional requests, directories as listings. Names that begin
    with a dot are not served, nor is anything outside the directory: only links that stay inside it are followed.

    Args:
        directory: The directory to serve.
        host: The name or address to listen on.
        port: The port; 0 picks a free one.
        token: A secret that clients must send, as `Authorization: Bearer TOKEN` or as a password. None lets everyone
            read who can connect.
        public: Whether to allow other machines to read without a token. Otherwise, without a token, the server
            listens only on addresses of this machine.
        connections: Most connections at a time; each takes three file descriptors, which may lower the number.
        patience_s: Seconds in which a client must send a request, and receive some of the answer.
        on_served: Called with each answered request, in the server's thread. It must not block.

    Attributes:
        url: URL of the directory, with a slash at the end.
        is_local: Whether only clients on this machine can connect.
        connections: Most connections at a time.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        token: str | None = None,
        public: bool = False,
        connections: int = 512,
        patience_s: float = 60.0,
        on_served: Callable[[Served], None] | None = None,
    ) -> None:
        """Bind the port; requests are answered only inside the `with` block.

        Raises:
            SourceMissingError: If the directory does not exist.
            UnsupportedError: If other machines could read without a token, or an argument is invalid.
            TransportError: If the port cannot be bound.
            MissingDependencyError: If aiohttp is not installed.
        """
        check_aiohttp("serve")
        root = os.path.abspath(local_path(directory, hint="Fetch what is there first"))
        with as_transport_error("could not serve the directory", root):
            if not os.path.exists(root):
                raise SourceMissingError.at(os.fspath(directory))
            if not os.path.isdir(root):
                raise SourceMissingError("not a directory", path=os.fspath(directory), found="a file")
            os.listdir(root)
        _check_numbers(port, connections, patience_s)
        self.connections = affordable_connections(connections)
        self._patience_s = patience_s
        self._on_served = on_served
        super().__init__(listening_socket(host, port), "tensorkeep-server")
        address, bound = self._socket.getsockname()[:2]
        self.is_local = is_loopback(address)
        try:
            self._site = Site(root, Access(token, only_local=self.is_local), CAN_ASK_MEMORY and mapping_pays(root))
            if token is None and not public and not self.is_local:
                _refuse_strangers(host)
        except BaseException:
            self._socket.close()
            raise
        self.url = f"http://{host_of_url(host, address)}:{bound}/"

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        self._threads = ThreadPoolExecutor(self.connections, thread_name_prefix="tensorkeep-send")
        self._sending = Sending(self._threads, self._patience_s)
        server = terse_server(
            self._handle,
            HEADERS,
            logger=_quiet,
            keepalive_timeout=min(_IDLE_S, self._patience_s),
            lingering_time=_GRACE_S,
            auto_decompress=False,  # request bodies are discarded
        )
        self._connections = Connections(server, self.connections)
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(self._connections, sock=self._socket, backlog=BACKLOG)
        try:
            yield
        finally:
            listener.close()
            self._sending.stop()
            for each in server.connections:
                each.close()
            await server.shutdown(_GRACE_S)
            await self._connections.end()
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request, and report it to `on_served`."""
        at_s, begin = time(), perf_counter()
        with self._connections.busy(request.protocol):
            try:
                question = _question_of(request)
                answer = answer_at_once(question, self._site) or await self._answer_in_thread(question)
                response, n_sent, is_whole = await self._give(request, answer)
            except Exception:
                _log.exception("A request failed")
                raise
        if self._on_served is not None:
            self._on_served(
                Served(
                    at_s=at_s,
                    client=request.remote or "",
                    method=request.method,
                    path=request.raw_path.partition("?")[0],
                    status=answer.status,
                    nbytes=n_sent,
                    is_whole=is_whole,
                    seconds=perf_counter() - begin,
                )
            )
        return response

    async def _answer_in_thread(self, question: Question) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._threads, answer_to, question, self._site)

    async def _give(self, request: web.BaseRequest, answer: Answer) -> tuple[web.StreamResponse, int, bool]:
        """Send an answer; return the response, the number of body bytes sent, and whether that is all of them."""
        from aiohttp import web

        transport = request.transport
        n_promised, n_sent = _n_promised(request, answer), 0
        if isinstance(answer.body, bytes):
            body = answer.body[:n_promised]
            response: web.StreamResponse = web.Response(status=answer.status, headers=answer.headers, body=body)
            is_whole = await self._is_done_in_time(transport, _write_all(response, request))
            n_sent = n_promised if is_whole else 0
        else:
            response = web.StreamResponse(status=answer.status, headers=answer.headers)
            with answer.body.file:
                if transport is not None and await self._is_done_in_time(
                    transport, _write_headers(response, request)
                ):
                    n_sent = await self._sending.send(transport, answer.body)
            is_whole = n_sent == n_promised
        if not is_whole and transport is not None:
            transport.abort()
        return response, n_sent, is_whole

    async def _is_done_in_time(self, transport: asyncio.Transport | None, writing: Coroutine[Any, Any, None]) -> bool:
        """Write, and cut the connection after some time; return whether the system has taken everything."""
        cut = asyncio.get_running_loop().call_later(self._patience_s, transport.abort) if transport else None
        try:
            await writing
        except ConnectionError:
            return False
        finally:
            if cut is not None:
                cut.cancel()
        return True


async def _write_all(response: web.StreamResponse, request: web.BaseRequest) -> None:
    await response.prepare(request)
    await response.write_eof()


async def _write_headers(response: web.StreamResponse, request: web.BaseRequest) -> None:
    writer = await response.prepare(request)
    if writer is not None:
        await writer.drain()


def _question_of(request: web.BaseRequest) -> Question:
    headers = {name.lower(): ", ".join(request.headers.getall(name)) for name in request.headers}
    return Question(request.method, request.raw_path, headers)


def _n_promised(request: web.BaseRequest, answer: Answer) -> int:
    """Return the size of the complete body."""
    if request.method == "HEAD":
        return 0
    return len(answer.body) if isinstance(answer.body, bytes) else answer.body.nbytes


def _check_numbers(port: int, connections: int, patience_s: float) -> None:
    check_port(port)
    if connections < 1 or not patience_s > 0:
        name, number = ("connections", connections) if connections < 1 else ("patience_s", patience_s)
        raise UnsupportedError(f"{name} is invalid", expected="more than 0", found=str(number))


def _refuse_strangers(host: str) -> NoReturn:
    raise UnsupportedError(
        "without a token, only clients on this machine are served",
        expected="a token, or an address such as 127.0.0.1",
        found=host,
        hint="token= (--token) lets in those who send it; public=True (--public) lets in everyone",
    )

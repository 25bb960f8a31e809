"""Replies to requests: files of the page, answers, and streams of what takes long."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from tensorkeep.errors import SourceMissingError
from tensorkeep.viewing._failures import BusyError, failure
from tensorkeep.viewing._guard import HEADERS, Guard
from tensorkeep.viewing._json import encoded
from tensorkeep.viewing._page import INDEX, PageFile
from tensorkeep.viewing._query import Query
from tensorkeep.viewing._routes import ROUTES
from tensorkeep.viewing._shelf import Shelf
from tensorkeep.viewing._streaming import LINES, Streaming
from tensorkeep.viewing._work import Work

if TYPE_CHECKING:
    from aiohttp import web

_N_ANSWERING: Final = 4
"""Threads for short answers."""

_MAX_ANSWERS: Final = 64
"""Short answers at a time, with those that wait."""

_COMPRESSED_NBYTES: Final = 2**14
"""Bytes from which an answer is worth compressing."""

_JSON: Final = "application/json; charset=utf-8"
_TEXT: Final = "text/plain; charset=utf-8"

_REFUSALS: Final = {
    403: "This address needs its secret: open the one that `tensorkeep view` prints.",
    405: "Only GET and HEAD are answered.",
    421: "This server answers only under the names of this machine.",
}


class Replies:
    """Replies to all requests of one viewer."""

    def __init__(self, shelf: Shelf, guard: Guard, page: Mapping[str, PageFile]) -> None:
        self._shelf = shelf
        self._guard = guard
        self._page = page
        self._threads = ThreadPoolExecutor(_N_ANSWERING, thread_name_prefix="tensorkeep-answer")
        self._streaming = Streaming()
        self._n_answers = 0

    def stop(self) -> None:
        """Stop all work."""
        self._streaming.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def reply(self, request: web.BaseRequest) -> web.StreamResponse:
        """Reply to a request."""
        path, _, query = request.raw_path.partition("?")
        headers = {name.lower(): ", ".join(request.headers.getall(name)) for name in request.headers}
        status = self._guard.refusal(request.method, path, headers)
        if status is not None:
            return _response(status, _TEXT, _REFUSALS[status].encode())
        _, slash, name = path.removeprefix("/").partition("/")
        if not slash:
            return _response(308, _TEXT, b"", {"Location": f"{path}/"})
        if name.startswith("api/"):
            return await self._answer(request, name.removeprefix("api/"), query)
        file = self._page.get(name or INDEX)
        if file is None:
            return _response(404, _TEXT, b"There is no such file.")
        return _response(200, file.content_type, file.content)

    async def _answer(self, request: web.BaseRequest, name: str, query: str) -> web.StreamResponse:
        try:
            found = await self._found(name, query)
            if isinstance(found, Work):
                self._streaming.check_room()
        except Exception as error:  # noqa: BLE001 - the page shows it
            status, members = failure(error)
            return _response(status, _JSON, encoded(members))
        if isinstance(found, bytes):
            response = _response(200, _JSON, found)
            if len(found) >= _COMPRESSED_NBYTES:
                response.enable_compression()
            return response
        stream = _stream_response()
        await stream.prepare(request)
        if request.method == "GET":
            await self._streaming.stream(found, stream)
        await stream.write_eof()
        return stream

    async def _found(self, name: str, query: str) -> Work | bytes:
        """Return an answer as JSON, or the work that makes one."""
        if self._n_answers >= _MAX_ANSWERS:
            raise BusyError("too many requests at once", expected=f"at most {_MAX_ANSWERS} answers", hint="Try again")
        self._n_answers += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._look_up, name, query)
        finally:
            self._n_answers -= 1

    def _look_up(self, name: str, query: str) -> Work | bytes:
        route = ROUTES.get(name)
        if route is None:
            raise SourceMissingError("there is no such answer", expected=", ".join(ROUTES))
        found = route(Query(query), self._shelf)
        return found if isinstance(found, Work) else encoded(found)


def _response(status: int, content_type: str, body: bytes, more: Mapping[str, str] | None = None) -> web.Response:
    from aiohttp import web

    headers = {**HEADERS, "Content-Type": content_type, **(more or {})}
    return web.Response(status=status, body=body, headers=headers)


def _stream_response() -> web.StreamResponse:
    from aiohttp import web

    return web.StreamResponse(headers={**HEADERS, "Content-Type": LINES})

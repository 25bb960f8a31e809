"""A web server that fails on command: it cuts, delays, lies, redirects, refuses and swaps files.

`FaultServer(files)` serves name to bytes, with ranges, on a port of the loopback. Each request takes the next `Fault`
of `server.faults`, if there is one; `server.requests` keeps what was asked.
"""

from __future__ import annotations

import base64
import hashlib
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import msgspec


class Fault(msgspec.Struct, frozen=True):
    """What goes wrong in the answer to one request.

    Attributes:
        close: The connection is closed without an answer.
        garbage: What comes is no HTTP.
        status: Answered instead of the file, such as 503.
        retry_after: What stands in the header of that name.
        delay_s: Seconds before the answer.
        stall_at: Bytes of the body after which nothing comes for `delay_s`.
        cut_at: Bytes of the body after which the connection is closed.
        whole: The range is ignored.
        shorter_by: Bytes by which the range is shorter than asked for, honestly.
        shifted_by: Bytes by which the range begins later than asked for, as the answer says.
        length_by: Bytes by which Content-Length is wrong.
        total_by: Bytes by which the size of the file is wrong.
        no_content_range: The answer does not say which range it has.
        encoding: Content-Encoding, which is not true.
        redirect: Where the answer sends to.
        swap: Bytes that the file has from now on.
        parts: What is wrong with the parts of an answer that has several: `"joined"` gives all that lies between the
            first and the last too, `"first"` only the first, `"reversed"`, `"fewer"`, `"twice"`, `"shifted"`,
            `"total"` (a wrong size of the file), `"headless"`, `"type"` (no boundary), `"short"` (a part is shorter
            than it says), `"last"` (the last part is).
    """

    close: bool = False
    garbage: bool = False
    status: int | None = None
    retry_after: str | None = None
    delay_s: float = 0
    stall_at: int | None = None
    cut_at: int | None = None
    whole: bool = False
    shorter_by: int = 0
    shifted_by: int = 0
    length_by: int = 0
    total_by: int = 0
    no_content_range: bool = False
    encoding: str | None = None
    redirect: str | None = None
    swap: bytes | None = None
    parts: str | None = None


class Asked(msgspec.Struct, frozen=True):
    """A request that came.

    Attributes:
        path: Of the file, without the query.
        query: What stands after `?`.
        headers: Name in lower case to value.
        client: Port of the client, which tells connections apart.
        span: Half-open range in bytes that was asked for; None for the whole file. Of several, the first.
        spans: All ranges that were asked for.
    """

    path: str
    query: str
    headers: dict[str, str]
    client: int
    span: tuple[int, int] | None
    spans: tuple[tuple[int, int], ...] = ()

    @property
    def nbytes(self) -> int:
        return sum(stop - start for start, stop in self.spans)


class FaultServer:
    """Serves files until the block ends.

    Args:
        files: Name to bytes.
        etags: `"strong"`, `"weak"` or `"none"`.
        ranges: Whether ranges are served.
        user: `name:password` that is wanted; None where anybody may read.
        many: Whether several ranges are served in one answer; if not, the whole file is.
        times: Whether answers say when the file was last changed.
    """

    def __init__(
        self,
        files: dict[str, bytes],
        *,
        etags: str = "strong",
        ranges: bool = True,
        user: str | None = None,
        many: bool = True,
        times: bool = True,
    ) -> None:
        self.many = many
        self.times = times
        self.files = dict(files)
        self.etags = etags
        self.ranges = ranges
        self.user = user
        self.faults: deque[Fault | None] = deque()
        self.requests: list[Asked] = []
        self.digests: dict[int, tuple[bytes, str]] = {}
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server.hang_up()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.host}/"

    def next_fault(self) -> Fault:
        try:
            return self.faults.popleft() or Fault()
        except IndexError:
            return Fault()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    owner: FaultServer

    def __init__(self, *arguments: Any) -> None:
        self.sockets: set[socket.socket] = set()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.sockets.add(request)
        super().process_request(request, client_address)

    def close_request(self, request: Any) -> None:
        self.sockets.discard(request)
        super().close_request(request)

    def hang_up(self) -> None:
        for each in list(self.sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients hang up, which is their right


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        owner = self.server.owner
        parts = urlsplit(self.path)
        name = unquote(parts.path).lstrip("/")
        fault = owner.next_fault()
        if fault.swap is not None:
            owner.files[name] = fault.swap
        data = owner.files.get(name)
        spans = self._spans(data)
        span = spans[0] if spans and (len(spans) == 1 or owner.many) else None
        headers = {key.lower(): value for key, value in self.headers.items()}
        owner.requests.append(Asked(name, parts.query, headers, self.client_address[1], span, tuple(spans)))
        if fault.stall_at is None:
            time.sleep(fault.delay_s)
        if fault.close:
            self.close_connection = True
        elif fault.garbage:
            self.wfile.write(b"\x00\xff so this is no answer\r\n\r\n")
            self.close_connection = True
        elif fault.redirect is not None:
            self._answer(302, {"Location": fault.redirect}, b"moved")
        elif fault.status is not None:
            after = {"Retry-After": fault.retry_after} if fault.retry_after is not None else {}
            self._answer(fault.status, after, b"trouble")
        elif owner.user is not None and self.headers.get("Authorization") != _basic(owner.user):
            self._answer(401, {"WWW-Authenticate": 'Basic realm="x"'}, b"who are you?")
        elif data is None:
            self._answer(404, {}, b"nothing here")
        elif self.headers.get("If-Match") not in {None, self._tag(data)}:
            self._answer(412, {}, b"another one")
        else:
            self._give(data, span if len(spans) < 2 else spans if span else None, fault)

    def _spans(self, data: bytes | None) -> list[tuple[int, int]]:
        text = self.headers.get("Range")
        if text is None or data is None or not self.server.owner.ranges:
            return []
        pairs = [each.partition("-") for each in text.removeprefix("bytes=").split(",")]
        return [(int(first), min(int(last) + 1, len(data))) for first, _, last in pairs]

    def _tag(self, data: bytes) -> str | None:
        tag = f'"{self._digest(data)}"'
        return {"strong": tag, "weak": f"W/{tag}", "none": None}[self.server.owner.etags]

    def _digest(self, data: bytes) -> str:
        known = self.server.owner.digests
        if id(data) not in known:
            known[id(data)] = data, hashlib.md5(data).hexdigest()
        return known[id(data)][1]

    def _give(self, data: bytes, span: tuple[int, int] | list[tuple[int, int]] | None, fault: Fault) -> None:
        headers = {"Last-Modified": f"version {self._digest(data)[:8]}"} if self.server.owner.times else {}
        if (tag := self._tag(data)) is not None:
            headers["ETag"] = tag
        if fault.encoding is not None:
            headers["Content-Encoding"] = fault.encoding
        if span is None or fault.whole:
            self._answer(200, headers, data, fault)
            return
        if isinstance(span, list):
            if fault.parts not in {"joined", "first"}:
                self._answer(206, *self._several(headers, data, span, fault), fault)
                return
            span = (span[0][0], span[-1][1]) if fault.parts == "joined" else span[0]
        start = min(span[0] + fault.shifted_by, len(data))
        stop = max(min(span[1] + fault.shifted_by, len(data)) - fault.shorter_by, start)
        if start >= stop:
            self._answer(416, headers | {"Content-Range": f"bytes */{len(data)}"}, b"")
            return
        if not fault.no_content_range:
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data) + fault.total_by}"
        self._answer(206, headers, data[start:stop], fault)

    def _several(
        self, headers: dict[str, str], data: bytes, spans: list[tuple[int, int]], fault: Fault
    ) -> tuple[dict[str, str], bytes]:
        change = {
            "reversed": lambda: spans[::-1],
            "fewer": lambda: spans[:-1],
            "twice": lambda: [spans[0], *spans],
            "shifted": lambda: [(start, stop + 1) for start, stop in spans],
        }
        total = len(data) + (fault.parts == "total")
        body = b""
        for number, (start, stop) in enumerate(change.get(fault.parts or "", lambda: spans)()):
            says = (
                "" if fault.parts == "headless" and number else f"Content-Range: bytes {start}-{stop - 1}/{total}\r\n"
            )
            body += f"\r\n--part\r\nContent-Type: text/plain\r\n{says}\r\n".encode()
            is_short = (fault.parts == "short" and number == 1) or (
                fault.parts == "last" and number == len(spans) - 1
            )
            body += data[start : stop - 3 * is_short]
        boundary = "" if fault.parts == "type" else "; boundary=part"
        return headers | {"Content-Type": f"multipart/byteranges{boundary}"}, body + b"\r\n--part--\r\n"

    def _answer(self, status: int, headers: dict[str, str], body: bytes, fault: Fault | None = None) -> None:
        fault = fault or Fault()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(max(0, len(body) + fault.length_by)))
        self.end_headers()
        if fault.stall_at is not None:
            self.wfile.write(body[: fault.stall_at])
            time.sleep(fault.delay_s)
            body = body[fault.stall_at :]
        if fault.cut_at is not None:
            body = body[: fault.cut_at]
        self.wfile.write(body)
        self.close_connection = self.close_connection or fault.cut_at is not None or fault.length_by != 0


def _basic(user: str) -> str:
    return "Basic " + base64.b64encode(user.encode()).decode()

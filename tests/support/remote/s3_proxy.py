"""A server in front of S3 that passes requests on, and of which tests make one that fails."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Proxy(BaseHTTPRequestHandler):
    """Passes requests on to S3, and answers otherwise."""

    protocol_version = "HTTP/1.1"
    target = ""

    def do_any(self) -> None:
        status, headers, data = self.ask()
        self.send_response(self.status_of(status))
        for name, value in headers:
            if name.lower() not in {"transfer-encoding", "connection", "date", "server"}:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_any

    def ask(self) -> tuple[int, list[tuple[str, str]], bytes]:
        """Pass the request on, and return the status, the headers and the body of the answer."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        connection = http.client.HTTPConnection(self.target.removeprefix("http://"))
        try:
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def status_of(self, status: int) -> int:
        """Return what is answered in place of what S3 does."""
        return status

    def log_message(self, *_: object) -> None:
        pass

    @classmethod
    @contextmanager
    def before(cls, target: str) -> Iterator[str]:
        cls.target = target
        server = ThreadingHTTPServer(("127.0.0.1", 0), cls)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()

"""A web server that answers as the Hugging Face Hub does to those who read: lists, files and redirects."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote, urlsplit

SMALL_NBYTES = 1000
"""Size up to which files are in the repository itself; larger ones are elsewhere, by their SHA-256."""


class HubServer:
    """Serves one repository until the block ends.

    Args:
        repo: Such as `org/model`.
        files: Path in it to bytes.
        token: What readers must know; None where anybody may read.

    Attributes:
        promised: Path to a SHA-256 that is said in place of the true one.
    """

    def __init__(self, repo: str, files: dict[str, bytes], token: str | None = None) -> None:
        self.repo, self.files, self.token = repo, files, token
        self.promised: dict[str, str] = {}
        self.requests: list[tuple[str, str, str | None]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.owner = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def describe(self, path: str) -> dict[str, Any]:
        data = self.files[path]
        found: dict[str, Any] = {
            "type": "file",
            "path": path,
            "size": len(data),
            "oid": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest(),
        }
        if len(data) > SMALL_NBYTES:
            found["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
        return found


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer_request(unquote(body.decode()))

    def do_GET(self) -> None:
        self._answer_request("")

    def _answer_request(self, body: str) -> None:
        owner: HubServer = self.server.owner  # type: ignore[attr-defined]
        path = unquote(urlsplit(self.path).path)
        owner.requests.append((self.command, path, self.headers.get("Range")))
        api = f"/api/models/{owner.repo}"
        resolve = f"/{owner.repo}/resolve/main/"
        is_known = owner.token is None or self.headers.get("Authorization") == f"Bearer {owner.token}"
        if path.startswith("/cdn/"):
            data = next(d for d in owner.files.values() if hashlib.sha256(d).hexdigest() == path.rpartition("/")[2])
            self._give(data)
        elif not is_known:
            self._send(401, {"X-Error-Code": "GatedRepo", "X-Error-Message": "not you"}, b"{}")
        elif path.startswith(f"{api}/tree/main"):
            folder = path.removeprefix(f"{api}/tree/main").strip("/")
            names = [name for name in owner.files if name.rpartition("/")[0] == folder]
            self._send_json([owner.describe(name) for name in names])
        elif path.startswith(f"{api}/paths-info/main"):
            self._send_json([owner.describe(name) for name in owner.files if name in body])
        elif path in {api, f"{api}/revision/main"}:
            self._send_json({"id": owner.repo, "sha": "0" * 40, "siblings": []})
        elif path.startswith(resolve) and path.removeprefix(resolve) in owner.files:
            data = owner.files[path.removeprefix(resolve)]
            sha256 = hashlib.sha256(data).hexdigest()
            promised = owner.promised.get(path.removeprefix(resolve), sha256)
            if len(data) > SMALL_NBYTES:
                headers = {"Location": f"/cdn/{sha256}", "X-Linked-Etag": f'"{promised}"', "X-Repo-Commit": "0" * 40}
                self._send(302, headers, b"elsewhere")
            else:
                self._give(data)
        else:
            code = "RepoNotFound" if path.startswith("/api/") else "EntryNotFound"
            self._send(404, {"X-Error-Code": code, "X-Error-Message": "nothing"}, b"{}")

    def _give(self, data: bytes) -> None:
        tag = {"ETag": f'"{hashlib.md5(data).hexdigest()}"'}
        span = self.headers.get("Range")
        if span is None:
            self._send(200, tag, data)
            return
        first, _, last = span.removeprefix("bytes=").partition("-")
        start, stop = int(first), min(int(last) + 1, len(data))
        self._send(206, tag | {"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"}, data[start:stop])

    def _send_json(self, value: Any) -> None:
        self._send(200, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

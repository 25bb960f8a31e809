"""HTTP as it goes over the wire, so that requests can say what no library would let them."""

from __future__ import annotations

import socket
from typing import NamedTuple
from urllib.parse import urlsplit


class Reply(NamedTuple):
    """What came back.

    Attributes:
        status: The status; 0 if nothing came.
        headers: Name in lower case to value.
        body: What came of the body.
        is_whole: Whether all came that the headers promise.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    is_whole: bool


def connect(url: str, timeout_s: float = 10) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=timeout_s)


def get(url: str, target: str | bytes = "/", method: str = "GET", **headers: str) -> Reply:
    """Make one request; headers are named with underscores."""
    if isinstance(target, str):
        target = target.encode()
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    host = "" if "Host" in headers else "Host: localhost\r\n"
    return send(url, method.encode() + b" " + target + b" HTTP/1.1\r\n" + (host + lines).encode() + b"\r\n", method)


def send(url: str, request: bytes, method: str = "GET") -> Reply:
    with connect(url) as connection:
        connection.sendall(request)
        return receive(connection, method)


def receive(connection: socket.socket, method: str = "GET") -> Reply:
    """Read one answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = _some(connection)
        if not piece:
            return Reply(0, {}, data, is_whole=False)
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    status = int(first.split()[1])
    nbytes = 0 if method == "HEAD" or status == 304 else int(headers.get("content-length", 0))
    pieces, n_come = [body], len(body)
    while n_come < nbytes and (piece := _some(connection)):
        pieces.append(piece)
        n_come += len(piece)
    return Reply(status, headers, b"".join(pieces), n_come == nbytes)


def _some(connection: socket.socket) -> bytes:
    try:
        return connection.recv(2**20)
    except ConnectionError:
        return b""

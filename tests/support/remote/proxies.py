"""A proxy on the loopback that notes what it is asked for, and TLS in front of a server that has none."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class Proxy:
    """A proxy that runs.

    Attributes:
        host: Its address and port.
        heads: The request lines and headers that came, one text each.
        password: What `Proxy-Authorization` must be; None where anybody may use it.
    """

    def __init__(self, host: str, password: str | None) -> None:
        self.host = host
        self.password = password
        self.heads: list[str] = []

    @property
    def url(self) -> str:
        return f"http://{self.host}"


@contextmanager
def running_proxy(password: str | None = None) -> Iterator[Proxy]:
    """Pass on requests for http, and tunnels for https."""

    def serve(client: socket.socket) -> None:
        head = _head_from(client)
        if not head:
            return
        proxy.heads.append(head)
        line, _, headers = head.partition("\r\n")
        if proxy.password is not None and f"Proxy-Authorization: {proxy.password}\r\n" not in headers:
            client.sendall(b"HTTP/1.1 407 X\r\nContent-Length: 0\r\n\r\n")
            return
        method, target, version = line.split()
        host, _, path = target.removeprefix("http://").partition("/")
        name, _, port = host.rpartition(":")
        with socket.create_connection((name, int(port)), timeout=20) as server:
            if method == "CONNECT":
                client.sendall(b"HTTP/1.1 200 X\r\n\r\n")
            else:
                server.sendall(f"{method} /{path} {version}\r\nConnection: close\r\n{headers}".encode())
            _relay(client, server)

    with _listening(serve) as port:
        proxy = Proxy(f"127.0.0.1:{port}", password)
        yield proxy


@contextmanager
def running_tls(port: int, certificate: Path) -> Iterator[int]:
    """Answer on another port for a server, with TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def serve(client: socket.socket) -> None:
        with (
            context.wrap_socket(client, server_side=True) as inner,
            socket.create_connection(("127.0.0.1", port)) as to,
        ):
            _relay(inner, to)

    with _listening(serve) as own:
        yield own


def make_certificate(path: Path) -> Path:
    """Write a key and a certificate of 127.0.0.1 that it signs."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", f"{path}.key", "-out", f"{path}.crt"),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    path.write_bytes(Path(f"{path}.key").read_bytes() + Path(f"{path}.crt").read_bytes())
    return path


@contextmanager
def _listening(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    listening = socket.create_server(("127.0.0.1", 0))

    def one(client: socket.socket) -> None:
        with suppress(OSError), client:
            serve(client)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=one, args=(listening.accept()[0],), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield int(listening.getsockname()[1])
    finally:
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(10)


def _head_from(client: socket.socket) -> str:
    head = b""
    while b"\r\n\r\n" not in head:
        byte = client.recv(1)
        if not byte:
            return ""
        head += byte
    return head.decode()


def _relay(one: socket.socket, other: socket.socket) -> None:
    def pump(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(2**16):
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    back = threading.Thread(target=pump, args=(other, one), daemon=True)
    back.start()
    pump(one, other)
    back.join(10)

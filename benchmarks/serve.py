"""A file over HTTP on this machine: `tensorkeep serve` and nginx, read by a client that discards everything."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks import inputs
from benchmarks.case import AtLeast, Case, Contender, Place
from benchmarks.web import start_nginx

__all__ = ["CASES"]

_SERVE = """
import sys
from tensorkeep.server import Server
with Server(sys.argv[1], port=0) as server:
    print(server.url.rpartition(":")[2].strip("/"), flush=True)
    sys.stdin.read()
"""

_BARE = """
import asyncio, sys
from aiohttp import web

async def answer(request):
    return web.Response(status=206, body=bytes(4096))

async def main():
    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


class _Site:
    """A file, two servers of it, and one that answers 4 KiB of zeros whatever the request."""

    def __init__(self, path: Path, spans: Sequence[Sequence[tuple[int, int]]]) -> None:
        self.path = path
        self.spans = spans
        self.ours = _start(_SERVE, str(path.parent))
        self.bare = _start(_BARE)
        self.nginx = start_nginx(path.parent)

    def read(self, port: int) -> None:
        """Read each connection's ranges in sequence, all connections in parallel."""
        with ThreadPoolExecutor(len(self.spans)) as threads:
            list(threads.map(lambda spans: _read(port, self.path.name, spans), self.spans))


def _read(port: int, name: str, spans: Sequence[tuple[int, int]]) -> None:
    buffer = memoryview(bytearray(2**20))
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for start, stop in spans:
            connection.sendall(
                f"GET /{name} HTTP/1.1\r\nHost: localhost\r\nRange: bytes={start}-{stop - 1}\r\n\r\n".encode()
            )
            n_read = 0
            while (end := bytes(buffer[:n_read]).find(b"\r\n\r\n")) < 0:
                n_read += _some(connection, buffer[n_read:])
            if not bytes(buffer[:12]) == b"HTTP/1.1 206":
                raise RuntimeError(bytes(buffer[:end]).decode())
            left = stop - start - (n_read - end - 4)
            while left:
                left -= _some(connection, buffer)


def _some(connection: socket.socket, into: memoryview) -> int:
    n_read = connection.recv_into(into)
    if not n_read:
        raise RuntimeError("the connection was cut")
    return n_read


def _start(program: str, *arguments: str) -> int:
    """Start a server, and return its port."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )  # it exits with this process, which holds its input
    assert process.stdout is not None
    return int(process.stdout.readline())


def _in_parts(n_connections: int) -> Callable[[Place], _Site]:
    """Declare a file of 1.0 GB; each connection reads an equal part in one request."""

    def prepare(place: Place) -> _Site:
        path = inputs.tensor_file(place.folder, "F32", (1024, place.size(3142, 32)), place.size(80, 8))
        inputs.read_into_cache(path)
        step = path.stat().st_size // n_connections
        return _Site(path, [[(n * step, n * step + step)] for n in range(n_connections)])

    return prepare


def _small_ranges(place: Place) -> _Site:
    """Declare ranges of 4 KiB all over the same file, on each of 8 connections."""
    path = inputs.tensor_file(place.folder, "F32", (1024, place.size(3142, 32)), place.size(80, 8))
    inputs.read_into_cache(path)
    starts = range(0, path.stat().st_size - 4096, path.stat().st_size // place.size(250, 5))
    return _Site(path, [[(start, start + 4096) for start in starts]] * 8)


_OURS = Contender("tensorkeep serve", lambda site: site.read(site.ours))
_NGINX = Contender("nginx", lambda site: site.read(site.nginx))

CASES = (
    Case(
        name="serve/whole",
        title="1.0 GB over one connection, from the page cache",
        prepare=_in_parts(1),
        ours=_OURS,
        peers=(_NGINX,),
        target=AtLeast(0.9),
        rounds=15,
        has_memory=False,
        remark="Both let the kernel send the file; the client discards the bytes. nginx runs in one process.",
    ),
    Case(
        name="serve/side-by-side",
        title="the same in 8 parts, over 8 connections in parallel",
        prepare=_in_parts(8),
        ours=_OURS,
        peers=(_NGINX,),
        target=AtLeast(0.9),
        rounds=15,
        has_memory=False,
    ),
    Case(
        name="serve/small",
        title="250 ranges of 4 KiB over each of 8 connections",
        prepare=_small_ranges,
        ours=_OURS,
        peers=(_NGINX,),
        limits=(Contender("aiohttp, zeros from memory", lambda site: site.read(site.bare)),),
        rounds=9,
        has_memory=False,
        remark="A request is handled in Python here, in C in nginx; the limit is what the server library takes "
        "to answer without looking at the request.",
    ),
)

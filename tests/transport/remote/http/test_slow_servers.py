"""Web servers that send just enough to seem alive."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile

import numpy as np
import pytest
import safetensors.numpy

import tensorkeep
from tensorkeep import remote
from tensorkeep.errors import SourceMissingError, TransportError
from tensorkeep.transport import ByteRange

FILE = safetensors.numpy.save({"w": np.arange(100_000, dtype=np.float32)})
HEAD = b'HTTP/1.1 206 X\r\nContent-Range: bytes 0-131071/1000000\r\nContent-Length: 131072\r\nETag: "a"\r\n\r\n'


@contextmanager
def serving(answer: Callable[[socket.socket, bytes], None]) -> Iterator[str]:
    """Answer each request on each connection, until the block ends."""
    listening = socket.create_server(("127.0.0.1", 0))
    connections: list[socket.socket] = []

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection = listening.accept()[0]
                connections.append(connection)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    def serve(connection: socket.socket) -> None:
        with suppress(OSError), connection, connection.makefile("rb") as lines:
            while request := b"".join(takewhile(lambda line: line != b"\r\n", lines)):
                answer(connection, request)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/m.safetensors"
    finally:
        for each in (listening, *connections):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        thread.join()


def after(head: bytes, dripped: bytes = b"x") -> Callable[[socket.socket, bytes], None]:
    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(dripped)
            time.sleep(0.05)

    return answer


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param(after(HEAD), TransportError, id="body"),
        pytest.param(after(b"HTTP/1.1 206 X\r\nX: "), TransportError, id="header"),
        pytest.param(after(b"HT"), TransportError, id="status"),
        pytest.param(after(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000), TransportError, id="continue"),
        pytest.param(
            after(b"HTTP/1.1 404 X\r\nContent-Length: 60000\r\n\r\n"), SourceMissingError, id="body of an error"
        ),
        pytest.param(
            after(b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"), TransportError, id="chunks"
        ),
    ],
)
def test_a_server_that_drips_is_given_up(answer, error) -> None:
    with serving(answer) as url:
        began = time.monotonic()
        with pytest.raises(error):
            tensorkeep.open(remote(url, timeout_s=0.3, attempts=2, pause_s=0.001, longest_pause_s=0.001))

        assert time.monotonic() - began < 5


def giving(pause_s: float) -> Callable[[socket.socket, bytes], None]:
    """Give ranges in pieces of 32 KiB."""

    def answer(connection: socket.socket, request: bytes) -> None:
        span = next(line for line in request.split(b"\r\n") if line.startswith(b"Range"))
        first, _, last = span.partition(b"bytes=")[2].partition(b"-")
        start, stop = int(first), min(int(last) + 1, len(FILE))
        connection.sendall(
            b"HTTP/1.1 206 X\r\nContent-Range: bytes %d-%d/%d\r\nContent-Length: %d\r\n\r\n"
            % (start, stop - 1, len(FILE), stop - start)
        )
        for place in range(start, stop, 2**15):
            connection.sendall(FILE[place : min(place + 2**15, stop)])
            time.sleep(pause_s)

    return answer


def test_a_slow_server_that_gives_enough_is_waited_for() -> None:
    with serving(giving(0.05)) as url:
        began = time.monotonic()
        found = tensorkeep.load(remote(url, timeout_s=0.2, attempts=1))

    assert np.array_equal(found["w"], np.arange(100_000))
    assert time.monotonic() - began > 0.3, "longer than a silent server is waited for"


def test_what_the_caller_does_meanwhile_does_not_count() -> None:
    came = bytearray(len(FILE))

    def write(offset: int, data: memoryview) -> None:
        came[offset : offset + len(data)] = data
        time.sleep(0.02)

    with serving(giving(0)) as url:
        source = remote(url, timeout_s=0.2, attempts=1, head_nbytes=10).open()
        source.copy_to(ByteRange(0, len(FILE)), memoryview(bytearray(2**13)), write)

    assert came == FILE

"""Sends parts of files to sockets, each in a thread of its own.

Each thread waits for its own client and for the disk, so that neither delays other clients. The kernel takes the
bytes from the page cache (sendfile); none passes through this process.
"""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from tensorkeep.server._body import FileBody
from tensorkeep.transport import ByteRange

_GATHERED_NBYTES: Final = 2**16
"""Bytes up to which a part of a file is sent from memory, together with its neighbors, in one call."""


class Sending:
    """The bodies that are being sent."""

    def __init__(self, threads: ThreadPoolExecutor, patience_s: float) -> None:
        self._threads = threads
        self._patience_s = patience_s
        self._sockets: set[socket.socket] = set()

    async def send(self, transport: asyncio.BaseTransport, body: FileBody) -> int:
        """Send a body over a connection whose write buffer is empty; return the bytes sent."""
        try:
            own = transport.get_extra_info("socket").dup()  # the connection may be closed meanwhile
        except OSError:  # it is closed already
            return 0
        with own:
            self._sockets.add(own)
            try:
                sending = asyncio.get_running_loop().run_in_executor(
                    self._threads, send_body, own, body, self._patience_s
                )
                try:
                    return await asyncio.shield(sending)
                except asyncio.CancelledError:
                    _cut(own)
                    await asyncio.wait([sending])
                    raise
            finally:
                self._sockets.discard(own)

    def stop(self) -> None:
        """Cut all running transfers."""
        for each in list(self._sockets):
            _cut(each)


def send_body(connection: socket.socket, body: FileBody, patience_s: float) -> int:
    """Send a body, and stop if the file turns out to have changed; return the bytes sent."""
    connection.settimeout(patience_s)
    flow = _Flow(connection, body)
    with suppress(OSError, _TooShortError):  # the client is gone, the disk failed, or time ran out
        for piece in body.pieces[:-1]:
            flow.send(piece)
        flow.flush()
        flow.send(body.pieces[-1])  # short, so it stays in the buffer
        if body.is_as_promised():
            flow.flush()
    return flow.n_sent


class _TooShortError(Exception):
    """The file has become shorter."""


class _Flow:
    """Sends pieces: short ones are gathered in memory, long ones go straight from the file."""

    def __init__(self, connection: socket.socket, body: FileBody) -> None:
        self.n_sent = 0
        self._connection = connection
        self._body = body
        self._gathered = bytearray()

    def send(self, piece: bytes | ByteRange) -> None:
        """Send a piece, or keep it for the next call."""
        if isinstance(piece, bytes):
            self._gathered += piece
        elif len(piece) <= _GATHERED_NBYTES:
            data = self._body.read(piece)
            self._gathered += data
            if len(data) < len(piece):
                raise _TooShortError
        else:
            self.flush()
            self._send_file(piece)
        if len(self._gathered) >= _GATHERED_NBYTES:
            self.flush()

    def flush(self) -> None:
        """Send what was gathered."""
        self._connection.sendall(self._gathered)
        self.n_sent += len(self._gathered)
        self._gathered.clear()

    def _send_file(self, span: ByteRange) -> None:
        file = self._body.file
        file.seek(span.start)
        try:
            self._connection.sendfile(file, span.start, len(span))
        finally:
            n_sent = file.tell() - span.start
            self.n_sent += n_sent
        if n_sent < len(span):
            raise _TooShortError


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):  # already cut
        connection.shutdown(socket.SHUT_RDWR)

"""Parts of an open file, with the text between them, as the body of an answer."""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Sequence
from typing import Final, NamedTuple

from tensorkeep.transport import ByteRange

CAN_ASK_MEMORY: Final = hasattr(os, "preadv") and hasattr(os, "RWF_NOWAIT")
"""Whether this system reads only what is in memory if it is told so."""


class FileBody(NamedTuple):
    """The body of an answer, read from a file.

    Attributes:
        file: The open file.
        status: Its `fstat` when the answer was made.
        pieces: Bytes, and half-open ranges of the file. The last one is sent only if the file was not changed while
            the others were read.
    """

    file: io.FileIO
    status: os.stat_result
    pieces: Sequence[bytes | ByteRange]

    @property
    def nbytes(self) -> int:
        """Size of all pieces in bytes."""
        return sum(map(len, self.pieces))

    def is_as_promised(self) -> bool:
        """Say whether the file has not been changed or truncated since the answer was made.

        A program that resets mtime after a change still changes ctime. But ctime also changes with the number of the
        file's names, such as when another file replaces it, and that changes no byte.
        """
        before, now = self.status, os.fstat(self.file.fileno())
        if (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            return False
        return now.st_ctime_ns == before.st_ctime_ns or now.st_nlink != before.st_nlink

    def in_memory(self) -> bytes | None:
        """Return the bytes of a body that is one part of the file if the system has them in memory."""
        parts = [piece for piece in self.pieces if isinstance(piece, ByteRange)]
        if not CAN_ASK_MEMORY or len(parts) < len(self.pieces):
            return None
        data = bytearray(self.nbytes)
        try:
            n_read = os.preadv(self.file.fileno(), [data], parts[0].start, os.RWF_NOWAIT)
        except OSError:  # not in memory, or the file system cannot say
            return None
        return bytes(data) if n_read == len(data) else None

    def read(self, span: ByteRange) -> bytes:
        """Return a part of the file; less if the file has become shorter."""
        self.file.seek(span.start)
        data = b""
        while len(data) < len(span) and (more := self.file.read(len(span) - len(data))):
            data += more
        return data


def one_part(file: io.FileIO, status: os.stat_result, span: ByteRange) -> FileBody:
    """Return the body of an answer with one part of a file."""
    last = max(span.stop - 1, span.start)
    return FileBody(file, status, (ByteRange(span.start, last), ByteRange(last, span.stop)))


def several_parts(
    file: io.FileIO, status: os.stat_result, spans: Sequence[ByteRange], content_type: str
) -> tuple[FileBody, str]:
    """Return the body of an answer with several parts of a file (RFC 9110, 14.6), and its type."""
    boundary = secrets.token_hex(16)
    pieces: list[bytes | ByteRange] = []
    for span in spans:
        part = f"bytes {span.start}-{span.stop - 1}/{status.st_size}"
        pieces += (
            f"\r\n--{boundary}\r\nContent-Type: {content_type}\r\nContent-Range: {part}\r\n\r\n".encode(),
            span,
        )
    pieces.append(f"\r\n--{boundary}--\r\n".encode())
    return FileBody(file, status, pieces), f"multipart/byteranges; boundary={boundary}"

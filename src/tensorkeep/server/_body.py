"""Parts of an open file, and what stands between them, as the body of an answer."""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Sequence
from typing import NamedTuple

from tensorkeep.server._conditions import FileVersion, version_of
from tensorkeep.transport import ByteRange

__all__ = ["FileBody", "one_part", "several_parts"]


class FileBody(NamedTuple):
    """What is sent.

    Attributes:
        file: The open file.
        version: What it was when the answer was made.
        pieces: Bytes, and parts of the file, half-open. The last is held back until it is known that the file was not
            changed while the others were read.
    """

    file: io.FileIO
    version: FileVersion
    pieces: Sequence[bytes | ByteRange]

    @property
    def nbytes(self) -> int:
        """Bytes of all pieces."""
        return sum(map(len, self.pieces))

    def is_as_promised(self) -> bool:
        """Say whether the file is still what the answer says, or has only grown."""
        now = version_of(os.fstat(self.file.fileno()))
        return now == self.version or now.nbytes > self.version.nbytes

    def read(self, span: ByteRange) -> bytes:
        """Return a part of the file, or less where it has become shorter.

        Args:
            span: The part.
        """
        self.file.seek(span.start)
        data = b""
        while len(data) < len(span) and (more := self.file.read(len(span) - len(data))):
            data += more
        return data


def one_part(file: io.FileIO, version: FileVersion, span: ByteRange) -> FileBody:
    """Return the body of an answer with one part of a file.

    Args:
        file: The file.
        version: What it is.
        span: The part.
    """
    last = max(span.stop - 1, span.start)
    return FileBody(file, version, (ByteRange(span.start, last), ByteRange(last, span.stop)))


def several_parts(
    file: io.FileIO, version: FileVersion, spans: Sequence[ByteRange], content_type: str
) -> tuple[FileBody, str]:
    """Return the body of an answer with several parts of a file (RFC 9110, 14.6), and its type.

    Args:
        file: The file.
        version: What it is.
        spans: The parts.
        content_type: That of the file.
    """
    boundary = secrets.token_hex(16)
    pieces: list[bytes | ByteRange] = []
    for span in spans:
        part = f"bytes {span.start}-{span.stop - 1}/{version.nbytes}"
        pieces += (
            f"\r\n--{boundary}\r\nContent-Type: {content_type}\r\nContent-Range: {part}\r\n\r\n".encode(),
            span,
        )
    pieces.append(f"\r\n--{boundary}--\r\n".encode())
    return FileBody(file, version, pieces), f"multipart/byteranges; boundary={boundary}"

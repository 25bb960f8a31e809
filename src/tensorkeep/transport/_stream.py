"""A source over a binary file object: anything with `read` and `seek`."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable
from typing import BinaryIO

from tensorkeep.buffers import Buffer
from tensorkeep.errors import SourceChangedError, UnsupportedError, as_transport_error
from tensorkeep.transport._base import ByteRange

__all__ = ["StreamSource"]


class StreamSource:
    """A seekable binary file object, read under a lock; it stays the caller's and is not closed.

    Args:
        stream: Opened for reading bytes.

    Raises:
        UnsupportedError: If it cannot seek, or gives text.
    """

    def __init__(self, stream: BinaryIO) -> None:
        """Measure the object; see the class."""
        self.name = str(getattr(stream, "name", f"<{type(stream).__name__}>"))
        self._stream = stream
        self._lock = threading.Lock()
        try:
            self.nbytes = stream.seek(0, io.SEEK_END)
            reads_bytes = isinstance(stream.read(0), bytes)
        except (OSError, ValueError) as error:  # ValueError: it is closed
            raise UnsupportedError("the file object cannot be read here and there", found=str(error)) from error
        if not reads_bytes:
            raise UnsupportedError("the file object gives text", hint='Open it for bytes: open(path, "rb")')

    def map(self) -> Buffer | None:
        """Return None: a file object has no buffer of its own."""
        return None

    def read(self, span: ByteRange) -> Buffer:
        """Return the bytes of a range.

        Args:
            span: Half-open, inside the source.

        Returns:
            The bytes.

        Raises:
            SourceChangedError: If the object ends early.
            TransportError: If it fails.
        """
        data = bytearray()
        with as_transport_error("could not read the file object", self.name), self._lock:
            self._stream.seek(span.start)
            while len(data) < len(span) and (more := self._stream.read(len(span) - len(data))):
                data += more
        if len(data) != len(span):
            raise SourceChangedError(
                "the file object ended early",
                path=self.name,
                expected=f"{len(span):,} bytes at {span.start:,}",
                found=f"{len(data):,}",
            )
        return data

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers one after another.

        Args:
            parts: Byte offset in the source, and the writable bytes to fill from there.

        Raises:
            SourceChangedError: If the object ends early.
        """
        for offset, into in parts:
            into[:] = memoryview(self.read(ByteRange(offset, offset + len(into))))

    def close(self) -> None:
        """Leave the object to its owner."""

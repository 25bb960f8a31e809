"""A source over a binary file object: anything with `read` and `seek`."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable
from typing import BinaryIO

from tensorkeep.buffers import Buffer
from tensorkeep.errors import SourceChangedError
from tensorkeep.transport._base import ByteRange

__all__ = ["StreamSource"]


class StreamSource:
    """A seekable binary file object, read under a lock; it stays the caller's and is not closed.

    Args:
        stream: Opened for reading bytes.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.name = str(getattr(stream, "name", f"<{type(stream).__name__}>"))
        self._stream = stream
        self._lock = threading.Lock()
        self.nbytes = stream.seek(0, io.SEEK_END)

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
        """
        with self._lock:
            self._stream.seek(span.start)
            data = self._stream.read(len(span))
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

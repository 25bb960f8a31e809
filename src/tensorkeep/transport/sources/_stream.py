"""A source over a binary file object: anything with `read` and `seek`."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import IO

from tensorkeep.buffers import Buffer
from tensorkeep.errors import SourceChangedError, UnsupportedError, as_transport_error
from tensorkeep.limits import GAP_NBYTES, READ_NBYTES
from tensorkeep.locks import ReadLock
from tensorkeep.transport.sources._base import ByteRange


class StreamSource:
    """A seekable binary file object, read under a lock; the caller owns and closes it."""

    gap_nbytes = GAP_NBYTES

    def __init__(self, stream: IO[bytes]) -> None:
        self.name = str(getattr(stream, "name", f"<{type(stream).__name__}>"))
        self._stream = stream
        self._lock = ReadLock()
        try:
            self.nbytes = stream.seek(0, io.SEEK_END)
            reads_bytes = isinstance(stream.read(0), bytes)
        except (OSError, ValueError) as error:  # ValueError: it is closed
            raise UnsupportedError("the file object cannot seek", found=str(error)) from error
        if not reads_bytes:
            raise UnsupportedError(
                "the file object reads text, not bytes", hint='Open it for bytes: open(path, "rb")'
            )

    def map(self, span: ByteRange) -> tuple[Buffer, int] | None:  # noqa: ARG002 - the protocol's
        """Return None: a file object has no buffer of its own."""
        return None

    def read(self, span: ByteRange) -> Buffer:
        """Return the bytes of a range."""
        data = bytearray(len(span))
        self.read_into([(span.start, memoryview(data))])
        return data

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of a range in order."""
        for start in range(span.start, span.stop, READ_NBYTES):
            yield self.read(ByteRange(start, min(start + READ_NBYTES, span.stop)))

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers one after another."""
        for offset, into in parts:
            with as_transport_error("could not read the file object", self.name), self._lock:
                self._stream.seek(offset)
                done = 0
                while done < len(into) and (data := self._stream.read(min(READ_NBYTES, len(into) - done))):
                    into[done : done + len(data)] = data
                    done += len(data)
            if done != len(into):
                raise SourceChangedError(
                    "the file object ended early",
                    path=self.name,
                    expected=f"{len(into):,} bytes at {offset:,}",
                    found=f"{done:,}",
                )

    def close(self) -> None:
        """Do nothing: the caller owns the file object."""

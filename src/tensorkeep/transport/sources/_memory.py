"""A source over bytes that are already in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tensorkeep.buffers import Buffer
from tensorkeep.errors import TransportError
from tensorkeep.limits import GAP_NBYTES
from tensorkeep.transport.sources._base import ByteRange, check_inside


class MemorySource:
    """A C-contiguous buffer, such as bytes, bytearray or memoryview, read in place."""

    gap_nbytes = GAP_NBYTES

    def __init__(self, data: Buffer, name: str = "<memory>") -> None:
        self.name = name
        self._view: memoryview | None = memoryview(data).cast("B")
        self.nbytes = len(self._view)

    def map(self, span: ByteRange) -> tuple[Buffer, int] | None:  # noqa: ARG002 - the protocol's
        """Return None: tensors are copies, so that writing to them does not change the caller's bytes."""
        return None

    def read(self, span: ByteRange) -> Buffer:
        """Return the bytes of a range, without a copy."""
        view = self._opened()
        check_inside(span, self)
        return view[span.start : span.stop]

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of a range, without a copy."""
        yield self.read(span)

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Copy bytes out."""
        view = self._opened()
        for offset, into in parts:
            check_inside(ByteRange(offset, offset + len(into)), self)
            into[:] = view[offset : offset + len(into)]

    def close(self) -> None:
        """Drop the caller's buffer."""
        self._view = None

    def __reduce__(self) -> tuple[Any, ...]:
        return MemorySource, (bytes(self._opened()), self.name)

    def _opened(self) -> memoryview:
        if self._view is None:
            raise TransportError("File is closed", path=self.name)
        return self._view

"""Whole numbers of 4 or 2 bits, each in the lowest bits of a byte whose other bits may be anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tensorkeep.buffers import Buffer
from tensorkeep.transport import ByteRange, ByteSource


class WidenedSource:
    """A data file with numbers of a few bits, the highest perhaps a sign, as the 8-bit numbers that they mean."""

    def __init__(self, source: ByteSource, bits: int, *, is_signed: bool) -> None:
        self.name = source.name
        self.nbytes = source.nbytes
        self.gap_nbytes = source.gap_nbytes
        self._source = source
        self._bits = bits
        self._is_signed = is_signed

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._source, self._bits, self._is_signed)

    def map(self, span: ByteRange) -> tuple[Buffer, int] | None:  # noqa: ARG002 - the protocol's
        """Return None: the wider numbers are stored nowhere."""
        return None

    def read(self, span: ByteRange) -> Buffer:
        """Return the bytes of a range."""
        return self._widened(self._source.read(span))

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of a range in order."""
        for piece in self._source.pieces(span):
            yield self._widened(piece)

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers."""
        parts = list(parts)
        self._source.read_into(parts)
        for _, into in parts:
            into[:] = self._widened(into)

    def close(self) -> None:
        """Close the data file."""
        self._source.close()

    def _widened(self, data: Buffer) -> memoryview:
        import numpy as np

        high = np.frombuffer(data, np.uint8) << (8 - self._bits)
        numbers: Any = high.view(np.int8 if self._is_signed else np.uint8) >> (8 - self._bits)
        return memoryview(numbers.view(np.uint8))


def _restored(source: ByteSource, bits: int, is_signed: bool) -> WidenedSource:
    return WidenedSource(source, bits, is_signed=is_signed)

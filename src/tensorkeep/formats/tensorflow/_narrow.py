"""Whole numbers of 4 or 2 bits, each in the lowest bits of a byte whose other bits may be anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tensorkeep.buffers import Buffer
from tensorkeep.transport import ByteRange, ByteSource

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class WidenedSource:
    """A data file with narrow numbers as the 8-bit numbers that they mean.

    Args:
        source: The data file.
        bits: Bits of a number: 2 or 4.
        is_signed: Whether the highest of them is a sign.
    """

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
        return memoryview(self._widened(self._source.read(span))).cast("B")

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of a range in order."""
        for piece in self._source.pieces(span):
            yield memoryview(self._widened(piece)).cast("B")

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers."""
        parts = list(parts)
        self._source.read_into(parts)
        for _, into in parts:
            into[:] = memoryview(self._widened(into)).cast("B")

    def close(self) -> None:
        """Close the data file."""
        self._source.close()

    def _widened(self, data: Buffer) -> NDArray[np.integer[Any]]:
        import numpy as np

        high = np.frombuffer(data, np.uint8) << (8 - self._bits)
        return high.view(np.int8 if self._is_signed else np.uint8) >> (8 - self._bits)


def _restored(source: ByteSource, bits: int, is_signed: bool) -> WidenedSource:
    return WidenedSource(source, bits, is_signed=is_signed)

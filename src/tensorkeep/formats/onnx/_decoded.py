"""Elements that a file does not store as memory has them: varints, and integers of two or four bits. Pure.

They are decoded when they are read: integers of a few bits only where they are wanted, varints all, since only
walking them tells where each begins.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from tensorkeep.buffers import Buffer
from tensorkeep.errors import FormatError
from tensorkeep.formats.protobuf import read_varints
from tensorkeep.transport import ByteRange, ByteSource, MemorySource

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_PIECE_NBYTES: Final = 2**20


class DecodedSource(ABC):
    """The elements of one tensor, as bytes that memory would have.

    Attributes:
        name: The file.
        nbytes: Bytes of all elements.
        gap_nbytes: As in the file.
    """

    def __init__(self, source: ByteSource, nbytes: int) -> None:
        self.name = source.name
        self.nbytes = nbytes
        self.gap_nbytes = source.gap_nbytes
        self._source = source

    @abstractmethod
    def _decode(self, span: ByteRange) -> bytes:
        """Return the bytes of some elements."""

    def map(self, span: ByteRange) -> tuple[Buffer, int] | None:  # noqa: ARG002 - the protocol's
        """Return None: the decoded bytes are stored nowhere."""
        return None

    def read(self, span: ByteRange) -> Buffer:
        """Return the bytes of a range."""
        return self._decode(span)

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of a range in order."""
        for start in range(span.start, span.stop, _PIECE_NBYTES):
            yield self._decode(ByteRange(start, min(start + _PIECE_NBYTES, span.stop)))

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers."""
        for start, into in parts:
            into[:] = self._decode(ByteRange(start, start + len(into)))

    def close(self) -> None:
        """Close the file."""
        self._source.close()


class NarrowIntegers(DecodedSource):
    """Integers of 2 or 4 bits, the first in the lowest bits of a byte, as one byte each."""

    def __init__(self, source: ByteSource, start: int, n_elements: int, bits: int, *, is_signed: bool) -> None:
        super().__init__(source, n_elements)
        self._start, self._bits, self._is_signed = start, bits, is_signed

    @property
    def data_type(self) -> str:
        """ONNX's name for the integers in the file."""
        return f"{'INT' if self._is_signed else 'UINT'}{self._bits}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _narrow, (self._source, self._start, self.nbytes, self._bits, self._is_signed)

    def _decode(self, span: ByteRange) -> bytes:
        import numpy as np

        n_per_byte = 8 // self._bits
        first = span.start // n_per_byte
        stored = ByteRange(self._start + first, self._start + -(-span.stop // n_per_byte))
        packed = np.frombuffer(self._source.read(stored), np.uint8)
        mask, sign = np.uint8(2**self._bits - 1), np.uint8(2 ** (self._bits - 1))
        spread = np.empty((len(packed), n_per_byte), np.uint8)
        for place in range(n_per_byte):
            spread[:, place] = (packed >> np.uint8(place * self._bits)) & mask
        if self._is_signed:
            spread ^= sign
            spread -= sign
        skipped = span.start - first * n_per_byte
        return spread.reshape(-1)[skipped : skipped + len(span)].tobytes()


def _narrow(source: ByteSource, start: int, n_elements: int, bits: int, is_signed: bool) -> NarrowIntegers:
    return NarrowIntegers(source, start, n_elements, bits, is_signed=is_signed)


class GatheredElements(DecodedSource):
    """Elements of fixed size that are fields of their own, or in several packed ones."""

    def __init__(self, source: ByteSource, spans: tuple[ByteRange, ...]) -> None:
        super().__init__(source, sum(map(len, spans)))
        self._spans = spans

    def __reduce__(self) -> tuple[Any, ...]:
        return GatheredElements, (self._source, self._spans)

    def _decode(self, span: ByteRange) -> bytes:
        return bytes(gathered(self._source, self._spans)[span.start : span.stop])

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of a range at once."""
        yield self._decode(span)


class VarintElements(DecodedSource):
    """Elements that are numbers of variable length. Only their lowest bits count.

    `bits` is how many of each number count. Numbers of 6 bits are then packed, four in three bytes.
    """

    def __init__(self, source: ByteSource, spans: tuple[ByteRange, ...], bits: int, nbytes: int) -> None:
        super().__init__(source, nbytes)
        self._spans, self._bits = spans, bits

    def __reduce__(self) -> tuple[Any, ...]:
        return VarintElements, (self._source, self._spans, self._bits, self.nbytes)

    def _decode(self, span: ByteRange) -> bytes:
        return self._all()[span.start : span.stop]

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of a range at once."""
        yield self._decode(span)

    def _all(self) -> bytes:
        stored: tuple[ByteSource, ByteRange] = (self._source, self._spans[0])
        if len(self._spans) > 1:
            data = bytes(gathered(self._source, self._spans))
            stored = MemorySource(data), ByteRange(0, len(data))
        width = 8 if self._bits == 6 else self._bits
        found = bytearray()
        for numbers in read_varints(*stored):
            found += numbers.astype(f"<u{width // 8}").tobytes()
            if len(found) > self.nbytes * 2:  # of 6 bits, one byte each is expected
                break
        if self._bits == 6:
            found = bytearray(_packed(found))
        if len(found) != self.nbytes:
            raise FormatError(
                "a tensor does not have the elements that its shape says",
                path=self.name,
                expected=f"{self.nbytes:,} bytes",
                found=f"{len(found):,}",
            )
        return bytes(found)


def gathered(source: ByteSource, spans: Iterable[ByteRange]) -> memoryview:
    """Return the bytes of several ranges, read together."""
    spans = list(spans)
    into = memoryview(bytearray(sum(map(len, spans))))
    parts, at = [], 0
    for span in spans:
        parts.append((span.start, into[at : at + len(span)]))
        at += len(span)
    source.read_into(parts)
    return into


def _packed(numbers: bytearray) -> bytes:
    """Return numbers of 6 bits, one per byte, as a stream of bits with the lowest first."""
    import numpy as np

    wide: NDArray[np.uint8] = np.frombuffer(numbers, np.uint8).reshape(-1, 1)
    spread = np.unpackbits(wide, axis=1, count=6, bitorder="little")
    return np.packbits(spread.reshape(-1), bitorder="little").tobytes()

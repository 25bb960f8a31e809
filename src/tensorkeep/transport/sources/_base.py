"""The vocabulary of transport: a range of bytes, something to read from, something to write to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, Protocol, TypeGuard, get_args

import msgspec

from tensorkeep.buffers import Buffer

Backend = Literal["auto", "mmap", "pread"]
"""How a local file is read: mapped, read into memory, or whichever suits its file system."""

BACKENDS: tuple[str, ...] = get_args(Backend)


class ByteRange(msgspec.Struct, frozen=True):
    """A half-open range of bytes, counted from the start of the source.

    Attributes:
        start: First byte.
        stop: One past the last byte.
    """

    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop:
            raise ValueError(f"not a byte range: [{self.start}, {self.stop})")

    def __len__(self) -> int:
        return self.stop - self.start


class ByteSource(Protocol):
    """Bytes at rest, to be read in any order and from any thread.

    Attributes:
        name: The path or URL, for messages.
        nbytes: Size in bytes, fixed when the source was opened.
        gap_nbytes: Unwanted bytes between two ranges up to which one read over them costs less than two reads.
    """

    name: str
    nbytes: int

    @property
    def gap_nbytes(self) -> int: ...

    def map(self, span: ByteRange) -> tuple[Buffer, int] | None:
        """Return a new private buffer over the bytes, or None where they must be read.

        Writing to it changes neither the source nor any other mapping. It lives as long as anything over it.
        """

    def read(self, span: ByteRange) -> Buffer:
        """Return the bytes of a range."""

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:
        """Give the bytes of a range in order, for looking at them once.

        Each piece is valid until the next is taken, and no view of it may be left then.
        """

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers, several at a time where that is faster."""

    def close(self) -> None:
        """Let go of the source; buffers made over it stay valid."""


def check_inside(span: ByteRange, source: ByteSource) -> None:
    """Refuse a range beyond the end of a source."""
    if span.stop > source.nbytes:
        raise ValueError(f"[{span.start}, {span.stop}) is outside the {source.nbytes:,} bytes of {source.name}")


class RunSource(ByteSource, Protocol):
    """A source that reads many runs of equal length better than one by one."""

    def read_runs(self, starts: Sequence[int], nbytes: int, into: memoryview) -> bool:
        """Fill memory with runs, one after another."""


def reads_runs(source: ByteSource) -> TypeGuard[RunSource]:
    """Say whether a source may read many runs at once."""
    return hasattr(source, "read_runs")


class ByteSink(Protocol):
    """Somewhere to write bytes, from first to last."""

    def preallocate(self, nbytes: int) -> None:
        """Reserve room."""

    def write(self, buffers: Iterable[Buffer]) -> None:
        """Append buffers, without a copy of those that are large."""

    def rewrite(self, offset: int, data: Buffer) -> None:
        """Overwrite bytes that were written before, such as a header whose digests are known only at the end."""

    def copy_from(self, source: ByteSource, span: ByteRange) -> None:
        """Append bytes of a source, copied by the system itself where both are local files."""

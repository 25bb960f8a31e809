"""The vocabulary of transport: byte ranges, sources to read from, sinks to write to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, Protocol, TypeGuard, get_args

import msgspec

from tensorkeep.buffers import Buffer

Backend = Literal["auto", "mmap", "pread"]
"""How to read a local file: map it, read it into memory, or whichever suits its file system."""

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
    """Bytes that can be read in any order and from any thread.

    Attributes:
        name: The path or URL, for messages.
        nbytes: Size in bytes, fixed when the source was opened.
        gap_nbytes: Largest gap between two ranges for which one read across it is cheaper than two reads.
    """

    name: str
    nbytes: int

    @property
    def gap_nbytes(self) -> int: ...

    def map(self, span: ByteRange) -> tuple[Buffer, int] | None:
        """Return a private buffer that contains the range, and the position of its first byte; None to read instead.

        Writing to the buffer changes neither the source nor any other mapping. It lives as long as views of it.
        """

    def read(self, span: ByteRange) -> Buffer:
        """Return the bytes of a range, which must be inside; on a server, each call may be a request."""

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of a range in order, to be processed once.

        A piece, and any view of it, is valid only until the next one is requested.
        """

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers, each from an offset, in parallel where that is faster."""

    def close(self) -> None:
        """Close the source; buffers from it stay valid."""


def check_inside(span: ByteRange, source: ByteSource) -> None:
    """Refuse a range beyond the end of a source."""
    if span.stop > source.nbytes:
        raise ValueError(f"[{span.start}, {span.stop}) is outside the {source.nbytes:,} bytes of {source.name}")


class RunSource(ByteSource, Protocol):
    """A source that reads many runs of equal length faster than one by one."""

    def read_runs(self, starts: Sequence[int], nbytes: int, into: memoryview) -> bool:
        """Fill memory with runs, one after another; return False if the caller must read them itself."""


def reads_runs(source: ByteSource) -> TypeGuard[RunSource]:
    """Whether a source has `read_runs`."""
    return hasattr(source, "read_runs")


class ByteSink(Protocol):
    """A destination for bytes, written in order."""

    def preallocate(self, nbytes: int) -> None:
        """Reserve space."""

    def write(self, buffers: Iterable[Buffer]) -> None:
        """Append buffers; large ones are not copied."""

    def rewrite(self, offset: int, data: Buffer) -> None:
        """Overwrite earlier bytes, such as a header whose digests are known only at the end."""

    def copy_from(self, source: ByteSource, span: ByteRange) -> None:
        """Append bytes of a source; the kernel copies them if both are local files."""


class ByteExtension(Protocol):
    """Bytes at the end of a destination, to be written in any order."""

    def write(self, offset: int, data: memoryview) -> None:
        """Write bytes at an offset from its start; several threads may do so at the same time."""


class ExtensibleSink(ByteSink, Protocol):
    """A destination that several threads can fill."""

    def extend(self, nbytes: int) -> ByteExtension:
        """Append bytes that are all written through what it returns, before anything else is done."""


def extends(sink: ByteSink) -> TypeGuard[ExtensibleSink]:
    """Whether a sink has `extend`."""
    return hasattr(sink, "extend")

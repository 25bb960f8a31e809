"""Tensors in chunks: what reading them needs of their format; and checksums of ranges of bytes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import msgspec

from tensorkeep.buffers import Buffer
from tensorkeep.digests import Algorithm
from tensorkeep.transport import ByteRange, ByteSource


class Checksum(msgspec.Struct, frozen=True):
    """The checksum of a range of bytes.

    Attributes:
        algorithm: What they are summed with.
        expected: The checksum that they should have.
        span: Which bytes of the file, half-open.
        source: Where the bytes are, if not in the file as it lies there, such as what a member unpacks to.
    """

    algorithm: Algorithm
    expected: bytes
    span: ByteRange
    source: ByteSource | None = None


class StoredChunk(msgspec.Struct, frozen=True):
    """One chunk in the file.

    Attributes:
        span: Its bytes, half-open.
        is_plain: Whether they are its elements in C order, so that nothing need be unpacked.
        mark: What else the format says of it.
    """

    span: ByteRange
    is_plain: bool
    mark: int = 0


class Chunks(Protocol):
    """The chunks of one tensor: boxes of one shape side by side, from the first element on, each stored or empty.

    Chunks at the end of a dimension are as large as all others. Usable from several threads; picklable if the source
    is.

    Attributes:
        source: The file.
        shape: Elements of a chunk along each dimension of the tensor.
        is_big_endian: Whether elements have their highest byte first.
        fill: What is where no chunk is stored: the bytes of one number, or of an array over the last dimensions;
            empty for zeros.
        fill_shape: The shape of that array; empty for one number.
    """

    source: ByteSource
    shape: tuple[int, ...]
    is_big_endian: bool
    fill: bytes
    fill_shape: tuple[int, ...]

    def stored(self) -> Mapping[tuple[int, ...], StoredChunk]:
        """Return the chunks that are stored, by their place among the chunks along each dimension; read once."""

    def unpack(self, chunk: StoredChunk, data: Buffer) -> Buffer:
        """Return the elements of a chunk, given its bytes in the file."""

    def checksums(self) -> list[Checksum]:
        """Return the checksums that the file has of stored chunks; empty where it has none."""


@runtime_checkable
class StreamedChunks(Chunks, Protocol):
    """Chunks that need not be in memory to be unpacked."""

    def unpack_into(self, chunk: StoredChunk, into: memoryview) -> bool:
        """Read a chunk and unpack it into memory for its elements, piece by piece; False if it must be held whole."""

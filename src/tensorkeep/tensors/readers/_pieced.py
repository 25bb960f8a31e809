"""A reader of a tensor in several places of files, one run of its bytes after another.

The whole tensor gets a new digest when it is written. The runs are then compared with the digests that they have:
damage must not get a new one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tensorkeep.arrays import StreamedTensor, TensorToWrite
from tensorkeep.buffers import Buffer, cut
from tensorkeep.digests import new_hasher
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import IntegrityError
from tensorkeep.tensors.readers._base import StoredTensor, stored_pieces
from tensorkeep.tensors.readers._contiguous import TensorReader
from tensorkeep.transport import ByteRange, ByteSource


class StoredPiece(msgspec.Struct, frozen=True, eq=False):
    """A run of a tensor's bytes in a file.

    Attributes:
        name: The name of the piece.
        source: The file.
        span: Half-open range of bytes of the file.
        digest: The BLAKE3 digest that the file has for them; None if it has none.
    """

    name: str
    source: ByteSource
    span: ByteRange
    digest: bytes | None

    def buffers(self) -> Iterator[Buffer]:
        """Give its bytes, and refuse them at the end if they do not have their digest."""
        hasher = new_hasher()
        for buffer in stored_pieces(self.source, self.span):
            hasher.update(buffer)
            yield buffer
        if self.digest is not None and hasher.digest() != self.digest:
            raise IntegrityError(
                f"the bytes of tensor `{self.name}` are not those that were saved",
                path=self.source.name,
                tensor=self.name,
                expected=f"digest {self.digest.hex()[:16]}…",
                found=f"{hasher.digest().hex()[:16]}…",
                hint=f"tensorkeep verify {self.source.name} lists everything",
            )


class StoredInPieces(StreamedTensor, frozen=True):
    """A tensor whose pieces are compared with their digests while they are written.

    Attributes:
        pieces: The pieces, in the order of the bytes.
    """

    pieces: tuple[StoredPiece, ...] = ()

    def run(self, start: int, stop: int) -> Iterator[Buffer]:
        """Give the bytes [start, stop); the pieces that have some of them are read and checked whole."""
        begin = 0
        for piece in self.pieces:
            end = begin + len(piece.span)
            if begin < stop and start < end:
                buffers = piece.buffers()
                yield from cut(buffers, max(start - begin, 0), stop - begin)
                deque(buffers, maxlen=0)  # its digest is compared at its end
            begin = end


class PiecedReader(TensorReader):
    """Reads one tensor whose bytes are consecutive pieces, joined in `source`; through `checked`, if it is given.

    Tensors that share memory are known by having one source, so copies of a reader keep it.
    """

    def __init__(
        self,
        pieces: Sequence[StoredPiece],
        source: ByteSource,
        framework: str,
        device: Any = "cpu",
        checked: ByteSource | None = None,
    ) -> None:
        self.pieces = tuple(pieces)
        super().__init__(source, 0, framework, device, checked)

    def __reduce__(self) -> tuple[Any, ...]:
        checked = self.source if self.is_checked else None
        return PiecedReader, (self.pieces, self.unchecked, self.framework, self.device, checked)

    def with_framework(self, framework: str, device: Any = "cpu") -> PiecedReader:
        """Return the same reader for another array library."""
        checked = self.source if self.is_checked else None
        return PiecedReader(self.pieces, self.unchecked, framework, device, checked)

    def checking(self, checked: ByteSource) -> PiecedReader:
        """Return a reader that reads tensors through a source that checks them."""
        return PiecedReader(self.pieces, self.unchecked, self.framework, self.device, checked)

    def tensor_to_write(self, name: str, entry: TensorEntry, digest: bytes | None = None) -> TensorToWrite:
        """Describe the tensor for writing: its pieces are checked on the way, if they have digests."""
        stored = super().tensor_to_write(name, entry, digest)
        if not isinstance(stored, StoredTensor) or all(piece.digest is None for piece in self.pieces):
            return stored
        return StoredInPieces(
            stored.dtype,
            stored.shape,
            stored.nbytes,
            self._buffers,
            stored.extent,
            stored.memory,
            digest,
            pieces=self.pieces,
        )

    def _buffers(self) -> Iterator[Buffer]:
        for piece in self.pieces:
            yield from piece.buffers()

"""The digests of all blocks of bytes that pass, and the root of a file of digests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensorkeep.buffers import Buffer
from tensorkeep.digests import Algorithm, new_keyed_hasher
from tensorkeep.digests.blocks._hashes import BLOCK_NBYTES, block_digest, key_of_block
from tensorkeep.digests.blocks._tree import root_of

if TYPE_CHECKING:
    from blake3 import blake3


class BlockHasher:
    """The block digests under way; `first` is the number of the first one."""

    def __init__(self, first: int = 0) -> None:
        self._made = bytearray()
        self._number = first
        self._begun: blake3 | None = None
        self._missing = BLOCK_NBYTES

    def update(self, data: Buffer) -> None:
        """Add bytes."""
        view = memoryview(data).cast("B")
        if self._begun is not None:
            view = self._add(self._begun, view)
        while len(view) >= BLOCK_NBYTES:
            self._made += block_digest(view[:BLOCK_NBYTES], self._number)
            self._number += 1
            view = view[BLOCK_NBYTES:]
        if view:
            self._begun = new_keyed_hasher(key_of_block(self._number))
            self._add(self._begun, view)

    def _add(self, hasher: blake3, view: memoryview) -> memoryview:
        """Add bytes to the block that is begun, and return what is left."""
        part, rest = view[: self._missing], view[self._missing :]
        hasher.update(part)
        self._missing -= len(part)
        if not self._missing:
            self._finish(hasher)
        return rest

    def _finish(self, hasher: blake3) -> None:
        self._made += hasher.digest()
        self._number += 1
        self._begun, self._missing = None, BLOCK_NBYTES

    def digests(self) -> bytes:
        """Return the digest of each block, one after another; no bytes can be added after that."""
        if self._begun is not None:
            self._finish(self._begun)
        return bytes(self._made)


class _TreeHasher:
    """The root of a file of digests, as a checksum of its bytes."""

    def __init__(self) -> None:
        self._file = bytearray()

    def update(self, data: Buffer, /) -> None:
        self._file += data

    def digest(self) -> bytes:
        return root_of(bytes(self._file))


TREE: Final = Algorithm("root", lambda _: _TreeHasher())
"""The root of a file of block digests; empty if the file is not consistent in itself."""

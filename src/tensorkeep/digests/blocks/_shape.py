"""How many digests each level of a tree has, and where they are in its file. Pure.

All of it follows from the size of the data, so nothing that a file says of itself is used as a count.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tensorkeep.digests import DIGEST_NBYTES
from tensorkeep.digests.blocks._hashes import BLOCK_NBYTES

FAN_OUT: Final = 32
"""Digests under one node: a kilobyte, which BLAKE3 hashes as one chunk."""

HEAD_NBYTES: Final = 80


class TreeShape(msgspec.Struct, frozen=True):
    """The tree over some data.

    Attributes:
        data_nbytes: Bytes of the data.
    """

    data_nbytes: int

    @property
    def n_blocks(self) -> int:
        """Number of blocks; the last one may be shorter."""
        return -(-self.data_nbytes // BLOCK_NBYTES)

    @property
    def lengths(self) -> list[int]:
        """Number of digests on each level, from the blocks upwards; the highest has no more than a node can have."""
        lengths = [self.n_blocks]
        while lengths[-1] > FAN_OUT:
            lengths.append(-(-lengths[-1] // FAN_OUT))
        return lengths

    @property
    def blocks_start(self) -> int:
        """First byte of the blocks' digests in the file; above them is everything that proves them."""
        return HEAD_NBYTES + DIGEST_NBYTES * sum(self.lengths[1:])

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return self.blocks_start + DIGEST_NBYTES * self.n_blocks

    def block_span(self, number: int) -> tuple[int, int]:
        """Return the half-open range of the data that is a block."""
        return number * BLOCK_NBYTES, min((number + 1) * BLOCK_NBYTES, self.data_nbytes)

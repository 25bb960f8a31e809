"""The digest of a block, of a node, and of the root: BLAKE3 with a key that says what is hashed. Pure.

The key is public. It holds a tag, a level and a number, so a digest of one place fits no other: not a block at
another position, nor an inner node.
"""

from __future__ import annotations

from typing import Final

from tensorkeep.buffers import Buffer
from tensorkeep.digests import keyed_digest

BLOCK_NBYTES: Final = 2**16
"""Bytes of each block but the last; a slice is read in whole blocks."""

TAG: Final = b"tensorkeepblocks"
"""The beginning of every key, and of the file."""

_ROOT_LEVEL: Final = 2**64 - 1


def block_digest(data: Buffer, number: int) -> bytes:
    """Return the digest of a block at a position."""
    return keyed_digest(data, key_of_block(number))


def key_of_block(number: int) -> bytes:
    """Return the key for a block at a position."""
    return _key(0, number)


def node_digest(children: Buffer, level: int, number: int) -> bytes:
    """Return the digest of a node; its level counts from the blocks, which have level 0."""
    return keyed_digest(children, _key(level, number))


def root_digest(head: bytes, top: bytes) -> bytes:
    """Return the root: the digest of the head and the highest level."""
    return keyed_digest(head + top, _key(_ROOT_LEVEL, 0))


def _key(level: int, number: int) -> bytes:
    return TAG + level.to_bytes(8, "little") + number.to_bytes(8, "little")

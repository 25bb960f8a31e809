"""BLAKE3 digests: 32 bytes that change with any byte of what they stand for.

BLAKE3 is cryptographic, and about four times as fast on one core as SHA-256 where that has instructions of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensorkeep.buffers import Buffer
from tensorkeep.forks import LibraryThreads

if TYPE_CHECKING:
    from blake3 import blake3

__all__ = ["DIGEST_NBYTES", "digest_of", "new_hasher"]

DIGEST_NBYTES: Final = 32
"""Bytes of a digest."""


_threads: Final = LibraryThreads()


def new_hasher(*, parallel: bool = False) -> blake3:
    """Return a hasher to feed with `update` and read with `digest`.

    Args:
        parallel: Whether each update may use all cores, where threads can do so; it pays from about 1 MiB per update.
    """
    from blake3 import blake3  # 3 ms, which reading tensors need not pay

    if not parallel or _threads.are_lost:
        return blake3(max_threads=1)
    _threads.start()
    return blake3(max_threads=blake3.AUTO)


def digest_of(data: Buffer) -> bytes:
    """Return the digest of some bytes.

    Args:
        data: The bytes.
    """
    hasher = new_hasher()
    hasher.update(data)
    return hasher.digest()

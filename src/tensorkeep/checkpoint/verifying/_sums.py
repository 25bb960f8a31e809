"""Checksums of whole files."""

from __future__ import annotations

from collections.abc import Callable

from tensorkeep.digests import BLAKE3, SHA256
from tensorkeep.digests.blocks import TREE
from tensorkeep.transport import ByteRange, ByteSource, open_source, sum_of

_PARALLEL_FROM_NBYTES = 2**20
"""Size of a file, in bytes, above which hashing on several cores is faster."""


def sha256_of(source: ByteSource, on_read: Callable[[int], None] | None = None) -> str:
    """Return the SHA-256 of a file, by which Git LFS and the Hugging Face Hub identify it."""
    return sum_of(source, ByteRange(0, source.nbytes), SHA256, on_read=on_read).hex()


def digest_of_file(path: str) -> str:
    """Return the BLAKE3 of a file, as 64 hexadecimal digits."""
    source = open_source(path, backend="pread")
    whole = ByteRange(0, source.nbytes)
    return sum_of(source, whole, BLAKE3, parallel=source.nbytes > _PARALLEL_FROM_NBYTES).hex()


def root_of_file(path: str) -> str:
    """Return the root of a file with block digests, as 64 hexadecimal digits; zeros if it is damaged."""
    source = open_source(path, backend="pread")
    return sum_of(source, ByteRange(0, source.nbytes), TREE).hex()

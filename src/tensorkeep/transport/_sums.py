"""Checksums of bytes in a source, read in bounded pieces."""

from __future__ import annotations

from collections.abc import Callable

from tensorkeep.digests import Algorithm
from tensorkeep.transport.sources import ByteRange, ByteSource


def sum_of(
    source: ByteSource,
    span: ByteRange,
    algorithm: Algorithm,
    *,
    parallel: bool = False,
    on_read: Callable[[int], None] | None = None,
) -> bytes:
    """Return the checksum of some bytes; `on_read` is called with the size of each piece."""
    hasher = algorithm.new(parallel)
    for piece in source.pieces(span):
        hasher.update(piece)
        if on_read is not None:
            on_read(len(piece))
    return hasher.digest()

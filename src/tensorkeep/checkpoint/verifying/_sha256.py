"""The SHA-256 of whole files: the name that Git LFS and the Hugging Face Hub give them."""

from __future__ import annotations

from collections.abc import Callable

from tensorkeep.transport import ByteRange, ByteSource


def sha256_of(source: ByteSource, on_read: Callable[[int], None] | None = None) -> str:
    """Return the SHA-256 of a file."""
    import hashlib  # 3 ms, which opening need not pay

    hasher = hashlib.sha256()
    for piece in source.pieces(ByteRange(0, source.nbytes)):
        hasher.update(piece)
        if on_read is not None:
            on_read(len(piece))
    return hasher.hexdigest()

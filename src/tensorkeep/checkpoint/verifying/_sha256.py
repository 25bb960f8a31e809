"""The SHA-256 of whole files: the name that Git LFS and the Hugging Face Hub give them."""

from __future__ import annotations

from collections.abc import Callable

from tensorkeep.transport import ByteRange, ByteSource

__all__ = ["sha256_of"]


def sha256_of(source: ByteSource, on_read: Callable[[int], None] | None = None) -> str:
    """Return the SHA-256 of a file.

    Args:
        source: The file.
        on_read: Called with the bytes of each piece that was read; what it raises ends the work.

    Returns:
        64 hexadecimal digits.

    Raises:
        TransportError: If it cannot be read.
    """
    import hashlib  # 3 ms, which opening need not pay

    hasher = hashlib.sha256()
    for piece in source.pieces(ByteRange(0, source.nbytes)):
        hasher.update(piece)
        if on_read is not None:
            on_read(len(piece))
    return hasher.hexdigest()

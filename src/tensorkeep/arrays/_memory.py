"""The bytes at an address of this process: memory that several tensors share, and none has as its own."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

from tensorkeep.buffers import Buffer

__all__ = ["bytes_at"]


def bytes_at(start: int, stop: int, owner: Any) -> Iterator[Buffer]:
    """Give the bytes at an address, without a copy.

    Args:
        start: Address of the first byte.
        stop: One past the last byte; all of them lie in memory that `owner` keeps.
        owner: Kept alive as long as the bytes are.

    Yields:
        The bytes, at once.
    """
    found = (ctypes.c_ubyte * (stop - start)).from_address(start)
    found.owner = owner  # type: ignore[attr-defined]
    yield memoryview(found).cast("B")

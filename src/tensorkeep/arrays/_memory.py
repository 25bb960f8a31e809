"""The bytes at an address of this process: memory that several tensors share, and none has as its own."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

from tensorkeep.buffers import Buffer


def bytes_at(start: int, stop: int, owner: Any) -> Iterator[Buffer]:
    """Give the bytes at an address, without a copy."""
    found = (ctypes.c_ubyte * (stop - start)).from_address(start)
    found.owner = owner  # type: ignore[attr-defined]
    yield memoryview(found).cast("B")

"""Tensors whose memory in this process is what a file will hold (imports ctypes)."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from itertools import accumulate
from operator import mul
from typing import Any, Final

from tensorkeep.arrays._base import Extent, TensorToWrite
from tensorkeep.buffers import Buffer


class TensorInMemory(TensorToWrite, frozen=True, gc=False):
    """A tensor on the CPU whose memory is what the file will hold; cheap, since a model can have 100,000 of them.

    Attributes:
        address: Where its first byte is; it has at least one.
        owner: Keeps the memory alive.
    """

    address: int
    owner: Any

    def extent(self) -> Extent:
        """Return where it is."""
        strides = list(accumulate(reversed(self.shape[1:]), mul, initial=1)) if self.shape else []
        return Extent("cpu", self.address, self.address + self.nbytes, tuple(reversed(strides)))

    def buffers(self) -> Iterator[Buffer]:
        """Yield its memory."""
        return self.memory(self.address, self.address + self.nbytes)

    def memory(self, start: int, stop: int) -> Iterator[Buffer]:
        """Yield memory of its owner."""
        return bytes_at(start, stop, self.owner)


_MEMORY: Final = memoryview((ctypes.c_ubyte * sys.maxsize).from_address(0)).cast("B")
"""All addresses of this process. To slice it is faster than to make an array of ctypes."""


def bytes_at(start: int, stop: int, owner: Any) -> Iterator[Buffer]:
    """Return the bytes at an address of this process without copying them; they keep their owner alive."""
    found = (ctypes.c_ubyte * (stop - start)).from_address(start)
    found.owner = owner  # type: ignore[attr-defined]
    yield memoryview(found).cast("B")


def view_at(address: int, nbytes: int) -> memoryview:
    """Return bytes at an address, which the caller keeps alive; much faster than by `bytes_at`."""
    return _MEMORY[address : address + nbytes]

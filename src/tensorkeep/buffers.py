"""The type of bytes that modules pass to each other, and parts of several of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from mmap import mmap
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap
"""Contiguous bytes."""


def cut(buffers: Iterator[Buffer], start: int, stop: int) -> Iterator[Buffer]:
    """Give the bytes [start, stop) of all buffers together; what follows is not taken."""
    begin = 0
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        part = view[max(start - begin, 0) : max(stop - begin, 0)]
        if len(part):
            yield part
        begin += len(view)
        if begin >= stop:
            return

"""Which blocks some ranges of the plain data touch. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from tensorkeep.encryption._cipher import BLOCK_NBYTES

MAX_BLOCKS: Final = 64
"""Blocks of one run: 4 MiB, which stay in the processor's caches between reading and decrypting."""

Part = tuple[int, memoryview]
"""The first byte of a range of the plain data, and the memory that gets the range."""


class Run(msgspec.Struct, frozen=True):
    """Blocks that follow each other, and the parts of memory that get something of them.

    Attributes:
        first: The first block.
        stop: One past the last.
        parts: What is wanted of them, in order.
    """

    first: int
    stop: int
    parts: list[Part]


def runs_of(parts: Iterable[Part]) -> Iterator[Run]:
    """Group what is wanted into runs of blocks, so that no block is decrypted twice unless ranges overlap."""
    first = stop = 0
    pending: list[Part] = []
    for offset, into in _cut(sorted(_filled(parts), key=lambda part: part[0])):
        begin, end = offset // BLOCK_NBYTES, -(-(offset + len(into)) // BLOCK_NBYTES)
        if pending and (begin > stop or end - first > MAX_BLOCKS):
            yield Run(first, stop, pending)
            pending = []
        if not pending:
            first, stop = begin, end
        pending.append((offset, into))
        stop = max(stop, end)
    if pending:
        yield Run(first, stop, pending)


def _filled(parts: Iterable[Part]) -> Iterator[Part]:
    return ((offset, into.cast("B")) for offset, into in parts if into.nbytes)


def _cut(parts: Iterable[Part]) -> Iterator[Part]:
    """Cut long parts where runs end."""
    step = MAX_BLOCKS * BLOCK_NBYTES
    for offset, into in parts:
        done = 0
        while done < len(into):
            end = min(len(into), (offset + done) // step * step + step - offset)
            yield offset + done, into[done:end]
            done = end

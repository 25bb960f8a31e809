"""Parts of a source, read in whole blocks that are compared with their digests before anything is copied out."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, Protocol

import msgspec

from tensorkeep.digests import DIGEST_NBYTES
from tensorkeep.digests.blocks import BLOCK_NBYTES, TreeShape, block_digest
from tensorkeep.parallel import parallel_for_each
from tensorkeep.transport.sources._base import ByteSource

_MAX_BATCH: Final = 16
"""Blocks per task of a thread."""

_MAX_THREADS: Final = 8


class BlockDigests(Protocol):
    """Digests of the blocks of a range of a source."""

    @property
    def shape(self) -> TreeShape:
        """The blocks."""

    @property
    def start(self) -> int:
        """First byte of the first block in the source."""

    def of(self, numbers: Collection[int]) -> dict[int, bytes]:
        """Return the digest of some blocks."""


class KnownBlocks(msgspec.Struct, frozen=True):
    """Digests that are in memory, because all bytes of the range were read and checked.

    Attributes:
        shape: The blocks.
        start: First byte of the first one.
        digests: The digest of each.
    """

    shape: TreeShape
    start: int
    digests: bytes

    def of(self, numbers: Collection[int]) -> dict[int, bytes]:
        """Return the digest of some blocks."""
        return {number: self.digests[number * DIGEST_NBYTES : (number + 1) * DIGEST_NBYTES] for number in numbers}


class Part(msgspec.Struct, frozen=True):
    """Memory for some bytes of a source.

    Attributes:
        start: First byte in the source.
        into: The memory.
    """

    start: int
    into: memoryview

    @property
    def stop(self) -> int:
        """One past the last byte."""
        return self.start + len(self.into)

    def divided(self, at: int) -> tuple[Part, Part]:
        """Return what is before a byte of the source and what follows."""
        before = min(max(at - self.start, 0), len(self.into))
        return Part(self.start, self.into[:before]), Part(self.start + before, self.into[before:])


class DamagedBlockError(Exception):
    """A block does not have its digest; `args` has its first byte in the source, and one past its last."""


def numbers_of(parts: Iterable[Part], start: int) -> set[int]:
    """Return the blocks that parts touch, where the first block begins at byte `start` of the source."""
    numbers: set[int] = set()
    for part in parts:
        if part.into:
            numbers.update(range((part.start - start) // BLOCK_NBYTES, -(-(part.stop - start) // BLOCK_NBYTES)))
    return numbers


def read_blocks(source: ByteSource, blocks: BlockDigests, parts: Sequence[Part]) -> None:
    """Fill parts with checked bytes: blocks that a part holds whole are read into it, others into memory apart."""
    digests = blocks.of(numbers_of(parts, blocks.start))
    reads: list[Part] = []
    views: list[tuple[int, memoryview]] = []
    cut: set[int] = set()
    for part in parts:
        inside = _whole_blocks(blocks, part)
        cut |= numbers_of([part], blocks.start).difference(inside)
        if inside:
            direct = part.divided(blocks.start + inside[0] * BLOCK_NBYTES)[1]
            direct = direct.divided(blocks.start + blocks.shape.block_span(inside[-1])[1])[0]
            reads.append(direct)
            views += _views(blocks, direct, inside)
    apart: dict[int, memoryview] = {}
    for numbers in _runs(sorted(cut)):
        first, stop = blocks.shape.block_span(numbers[0])[0], blocks.shape.block_span(numbers[-1])[1]
        run = Part(blocks.start + first, memoryview(bytearray(stop - first)))
        reads.append(run)
        apart.update(_views(blocks, run, numbers))
    source.read_into([(read.start, read.into) for read in reads])
    _check(blocks, digests, [*views, *apart.items()])
    for part in parts:
        for number in numbers_of([part], blocks.start) & apart.keys():
            _copy(apart[number], blocks.start + number * BLOCK_NBYTES, part)


def _whole_blocks(blocks: BlockDigests, part: Part) -> range:
    """Return the blocks that a part holds whole."""
    first = -(-(part.start - blocks.start) // BLOCK_NBYTES)
    stop = (part.stop - blocks.start) // BLOCK_NBYTES
    reaches_end = part.stop - blocks.start == blocks.shape.data_nbytes
    return range(first, blocks.shape.n_blocks if reaches_end else stop)


def _views(blocks: BlockDigests, read: Part, numbers: range) -> Iterator[tuple[int, memoryview]]:
    """Give the memory of each block of a read that begins with the first of them."""
    for place, number in enumerate(numbers):
        start, stop = blocks.shape.block_span(number)
        yield number, read.into[place * BLOCK_NBYTES : place * BLOCK_NBYTES + stop - start]


def _runs(numbers: list[int]) -> Iterator[range]:
    """Give runs of consecutive numbers."""
    begin = 0
    for place, number in enumerate(numbers):
        if place + 1 == len(numbers) or numbers[place + 1] != number + 1:
            yield range(numbers[begin], number + 1)
            begin = place + 1


def _check(blocks: BlockDigests, digests: dict[int, bytes], views: list[tuple[int, memoryview]]) -> None:
    def check(batch: list[tuple[int, memoryview]]) -> None:
        for number, view in batch:
            if block_digest(view, number) != digests[number]:
                start, stop = blocks.shape.block_span(number)
                raise DamagedBlockError(blocks.start + start, blocks.start + stop)

    batches = [views[at : at + _MAX_BATCH] for at in range(0, len(views), _MAX_BATCH)]
    parallel_for_each(batches, check, n_threads=min(_MAX_THREADS, os.cpu_count() or 1))


def _copy(block: memoryview, start: int, part: Part) -> None:
    """Copy what a block, whose first byte is byte `start` of the source, has of a part."""
    begin, end = max(start, part.start), min(start + len(block), part.stop)
    part.into[begin - part.start : end - part.start] = block[begin - start : end - start]

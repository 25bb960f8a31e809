"""A source that checks bytes against their digests while they are read.

Bytes of a whole tensor are compared with its digest, and parts of a tensor with the digests of their blocks. These
come from a file beside the data; without one, from a pass over the tensor, which compares it with its own digest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Final

from tensorkeep.buffers import Buffer
from tensorkeep.digests import Hasher, new_hasher
from tensorkeep.digests.blocks import BLOCK_NBYTES, BlockHasher, TreeShape
from tensorkeep.errors import IntegrityError, SourceMissingError
from tensorkeep.limits import PIECE_NBYTES
from tensorkeep.parallel import parallel_for_each
from tensorkeep.transport.sources._base import ByteRange, ByteSource
from tensorkeep.transport.sources._blocks import BlockDigests, DamagedBlockError, KnownBlocks, Part, read_blocks
from tensorkeep.transport.sources._digested_ranges import DigestedRange, DigestedRanges
from tensorkeep.transport.sources._local import LocalFile

_LARGE_NBYTES: Final = 2**27
"""Bytes from which all cores compute one digest together."""

_MAX_BATCH: Final = 16
"""Ranges per task of a thread."""

_MAX_THREADS: Final = 8

_READ_WHOLE_NBYTES: Final = 2**16
"""Bytes of tensors that are read whole even if a part is asked for; others are read in blocks of this size."""


class VerifyingSource:
    """Another source, whose ranges with digests are checked when they are read, and a mismatch is an error.

    A mapping is checked once, when it is made; as with any mapping, a program that writes to the file can change it
    later. A `private` source is never mapped: what was checked is what is used.
    """

    def __init__(
        self,
        source: ByteSource,
        find_ranges: Callable[[], DigestedRanges],
        blocks: BlockDigests | None = None,
        *,
        private: bool = False,
    ) -> None:
        self.name = source.name
        self.nbytes = source.nbytes
        self._source = source
        self._find_ranges = find_ranges
        self._blocks = blocks
        self._private = private
        self._known: dict[int, KnownBlocks] = {}

    @cached_property
    def _ranges(self) -> DigestedRanges:
        """What is checked, found when something is read: opening a file need not wait for it."""
        return self._find_ranges()

    @property
    def inner(self) -> ByteSource:
        """The wrapped source."""
        return self._source

    @property
    def gap_nbytes(self) -> int:
        """At least a block: two ranges of one block are read together."""
        return max(self._source.gap_nbytes, BLOCK_NBYTES)

    def map(self, span: ByteRange) -> tuple[Buffer, int] | None:
        """Map a range, and check it through the mapping."""
        mapping = None if self._private else self._source.map(span)
        if mapping is None:
            return None
        buffer, begin = mapping
        with memoryview(buffer) as whole:
            self._check(whole.cast("B"), begin, self._ranges.within(span.start, span.stop))
        return mapping

    def _check(self, data: memoryview, begin: int, checked: list[DigestedRange]) -> None:
        """Check ranges in memory whose first byte is byte `begin` of the source."""
        batches = [checked[at : at + _MAX_BATCH] for at in range(0, len(checked), _MAX_BATCH)]

        def check(batch: list[DigestedRange]) -> None:
            for one in batch:
                self._compare(one, data[one.span.start - begin : one.span.stop - begin])

        parallel_for_each(batches, check, n_threads=_n_threads())

    def read(self, span: ByteRange) -> Buffer:
        """Return the bytes of a range, checked."""
        data = bytearray(len(span))
        self.read_into([(span.start, memoryview(data))])
        return data

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of a range, checked."""
        for start in range(span.start, span.stop, PIECE_NBYTES):
            yield self.read(ByteRange(start, min(start + PIECE_NBYTES, span.stop)))

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers, and check them: whole tensors by their digests, parts of tensors by their blocks."""
        whole: list[Part] = []
        partial: dict[int, list[Part]] = {}
        for start, into in parts:
            self._divide(Part(start, into.cast("B")), whole, partial)
        if whole:
            self._source.read_into([(part.start, part.into) for part in whole])
        for part in whole:
            self._check(part.into, part.start, self._ranges.within(part.start, part.stop))
        for number, cut in partial.items():
            self._read_cut(number, cut)

    def _divide(self, part: Part, whole: list[Part], partial: dict[int, list[Part]]) -> None:
        """Divide what is to be read into ranges with digests, which are whole, and parts of such ranges."""
        number = self._ranges.cut_at(part.start)
        if number is not None:
            cut, part = part.divided(self._ranges.stops[number])
            partial.setdefault(number, []).append(cut)
        number = self._ranges.cut_at(part.stop)
        if number is not None and part.into:
            part, cut = part.divided(self._ranges.starts[number])
            partial.setdefault(number, []).append(cut)
        if part.into:
            whole.append(part)

    def _read_cut(self, number: int, parts: list[Part]) -> None:
        """Read parts of one tensor, checked by the digests of their blocks."""
        checked = self._ranges.at(number)
        if len(checked.span) <= _READ_WHOLE_NBYTES:
            data = memoryview(self.read(checked.span)).cast("B")
            for part in parts:
                begin = part.start - checked.span.start
                part.into[:] = data[begin : begin + len(part.into)]
            return
        try:
            self._read_blocks(checked, self._known.get(number) or self._blocks or self._learned(number), parts)
        except SourceMissingError:  # the block digests were not copied with the file
            self._blocks = None
            self._read_blocks(checked, self._learned(number), parts)

    def _read_blocks(self, checked: DigestedRange, blocks: BlockDigests, parts: list[Part]) -> None:
        try:
            read_blocks(self._source, blocks, parts)
        except DamagedBlockError as error:
            start, stop = error.args
            raise IntegrityError(
                f"the bytes of tensor `{checked.name}` are not those that were saved",
                path=self.name,
                tensor=checked.name,
                found=f"damage in bytes {start:,} to {stop:,}",
                hint=f"tensorkeep verify {self.name} lists everything",
            ) from None

    def _learned(self, number: int) -> KnownBlocks:
        """Read a tensor once to compare it with its digest, and keep the digests of its blocks."""
        checked = self._ranges.at(number)
        whole, blocks = new_hasher(), BlockHasher()
        for piece in self._source.pieces(checked.span):
            private = bytes(piece)  # a mapped piece could change between one digest and the other
            whole.update(private)
            blocks.update(private)
        _require_digest(whole, checked, self.name)
        known = KnownBlocks(TreeShape(len(checked.span)), checked.span.start, blocks.digests())
        self._known[number] = known
        return known

    def widened(self, spans: Iterable[ByteRange]) -> list[ByteRange]:
        """Return what is read for some ranges: the blocks that they touch, or whole tensors."""
        read: list[ByteRange] = []
        for span in sorted((self._widened(span) for span in spans), key=lambda span: span.start):
            if read and span.start <= read[-1].stop:
                read[-1] = ByteRange(read[-1].start, max(read[-1].stop, span.stop))
            else:
                read.append(span)
        return read

    def _widened(self, span: ByteRange) -> ByteRange:
        start, stop = span.start, span.stop
        if len(span):
            start = self._edges(start)[0]
            stop = self._edges(stop)[1]
        return ByteRange(start, stop)

    def _edges(self, position: int) -> tuple[int, int]:
        """Return the half-open range that is read where a tensor is cut at a position."""
        number = self._ranges.cut_at(position)
        if number is None:
            return position, position
        span = self._ranges.at(number).span
        blocks = self._known.get(number) or self._blocks
        if blocks is None or len(span) <= _READ_WHOLE_NBYTES:
            return span.start, span.stop
        first = (position - blocks.start) // BLOCK_NBYTES
        last = -(-(position - blocks.start) // BLOCK_NBYTES)
        stop = min(blocks.start + last * BLOCK_NBYTES, blocks.start + blocks.shape.data_nbytes)
        return blocks.start + first * BLOCK_NBYTES, stop

    def _compare(self, checked: DigestedRange, data: memoryview) -> None:
        hasher = new_hasher(parallel=len(data) >= _LARGE_NBYTES)
        hasher.update(data)
        _require_digest(hasher, checked, self.name)

    def in_order(self, span: ByteRange) -> CheckedRange | None:
        """Return a range to be read piece by piece, and checked at its end; None if it has no digest."""
        within = self._ranges.within(span.start, span.stop)
        return CheckedRange(self._source, within[0]) if [checked.span for checked in within] == [span] else None

    def close(self) -> None:
        """Close the wrapped source."""
        self._source.close()


class CheckedRange:
    """A range that is read in order, in pieces, and whose digest is checked with the last one."""

    def __init__(self, source: ByteSource, checked: DigestedRange) -> None:
        self._source = source
        self._checked = checked
        self._position = checked.span.start
        self._hasher = new_hasher()

    def read_into(self, into: memoryview) -> None:
        """Fill a buffer with the next bytes of the range; IntegrityError if these are the last and it is damaged."""
        self._source.read_into([(self._position, into)])
        self._hasher.update(into)
        self._position += len(into)
        if self._position == self._checked.span.stop:
            _require_digest(self._hasher, self._checked, self._source.name)


def _require_digest(hasher: Hasher, checked: DigestedRange, path: str) -> None:
    """Refuse bytes that do not have their digest."""
    if hasher.digest() != checked.digest:
        raise IntegrityError(
            f"the bytes of tensor `{checked.name}` are not those that were saved",
            path=path,
            tensor=checked.name,
            expected=f"digest {checked.digest.hex()[:16]}…",
            found=f"{hasher.digest().hex()[:16]}…",
            hint=f"tensorkeep verify {path} lists everything",
        )


def _n_threads() -> int:
    return min(_MAX_THREADS, os.cpu_count() or 1)


def prove_here(source: ByteSource) -> None:
    """Record that this process has read a local file whole, to compare it with a signature."""
    if isinstance(source, VerifyingSource):
        prove_here(source.inner)
    elif isinstance(source, LocalFile):
        source.is_proven_here = True


def was_proven_here(source: ByteSource) -> bool:
    """Say whether only this process has compared a local file with a signature."""
    if isinstance(source, VerifyingSource):
        return was_proven_here(source.inner)
    return isinstance(source, LocalFile) and source.is_proven_here


def was_replaced(source: ByteSource) -> bool:
    """Say whether a local file was replaced or written to after it was opened; what is not one file never was."""
    if isinstance(source, VerifyingSource):
        return was_replaced(source.inner)
    return isinstance(source, LocalFile) and source.was_replaced

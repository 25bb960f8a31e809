"""Which bytes pass through the host buffers together, and in what order. Pure.

Small tensors share a buffer, and are read with their neighbors in the file. Large ones are cut into pieces, which may
be read in any order, by any thread, unless something needs their bytes in order: a digest, or a source that can only
go forward, such as a compressed one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from tensorkeep.arrays import Move
from tensorkeep.transport import ByteRange, ByteSource, CheckedRange, VerifyingSource

_PACKED_NBYTES: Final = 2**18
"""Bytes of a tensor up to which it shares a buffer with others: copying it alone takes longer to start than to do."""

ALIGNMENT: Final = 64
"""Runs of tensors begin at multiples of this many bytes in a buffer: a multiple of the size of any element."""


class Part(msgspec.Struct, frozen=True, eq=False):
    """A tensor to fill from a source.

    Attributes:
        target: The position of the tensor among all that are filled.
        source: Has its bytes.
        span: Half-open range of the source.
        itemsize: Bytes of an element.
    """

    target: int
    source: ByteSource
    span: ByteRange
    itemsize: int


class Run(msgspec.Struct, frozen=True):
    """Neighboring bytes of a source.

    Attributes:
        offset: The first byte in the source.
        start: Where they go in the buffer.
        stop: One past the last of them in the buffer.
    """

    offset: int
    start: int
    stop: int


class Transfer(msgspec.Struct, frozen=True, eq=False):
    """What passes through one buffer at a time.

    Attributes:
        source: Is read.
        runs: What is read of it.
        moves: Which tensors the bytes belong to, in the order of the buffer.
        checked: Reads it instead, if it is the next piece of a range that has a digest.
    """

    source: ByteSource
    runs: tuple[Run, ...]
    moves: tuple[Move, ...]
    checked: CheckedRange | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of tensors."""
        return sum(run.stop - run.start for run in self.runs)


_NO_RUN: Final = Run(0, 0, 0)

Task = list[Transfer]
"""Transfers that one thread makes, in order."""


def plan_tasks(parts: Iterable[Part], buffer_nbytes: int) -> list[Task]:
    """Plan to fill tensors through buffers of a size, which is a multiple of 64 bytes."""
    groups: dict[int, list[Part]] = {}
    for part in parts:
        if len(part.span):
            groups.setdefault(id(part.source), []).append(part)
    tasks: list[Task] = []
    for group in groups.values():
        group.sort(key=lambda part: part.span.start)
        found = list(_tasks_of(group, buffer_nbytes))
        source = group[0].source
        is_forward = source.gap_nbytes >= source.nbytes
        tasks += [[transfer for task in found for transfer in task]] if is_forward else found
    return tasks


def _tasks_of(group: list[Part], buffer_nbytes: int) -> Iterator[Task]:
    """Yield the tasks for tensors of one source, which are in order."""
    packed = _Packed(group[0].source, buffer_nbytes)
    for part in group:
        if len(part.span) > min(_PACKED_NBYTES, buffer_nbytes):
            source = part.source
            checked = source.in_order(part.span) if isinstance(source, VerifyingSource) else None
            pieces = _pieces_of(part, buffer_nbytes, checked)
            yield from ([piece] for piece in pieces) if checked is None else [list(pieces)]
            continue
        if not packed.add(part):
            yield [packed.taken()]
            packed.add(part)
    if packed.moves:
        yield [packed.taken()]


def _pieces_of(part: Part, buffer_nbytes: int, checked: CheckedRange | None) -> Iterator[Transfer]:
    for start in range(part.span.start, part.span.stop, buffer_nbytes):
        nbytes = min(buffer_nbytes, part.span.stop - start)
        run = Run(start, 0, nbytes)
        move = Move(part.target, start - part.span.start, 0, nbytes)
        yield Transfer(part.source, (run,), (move,), checked)


class _Packed:
    """Small tensors, collected until a buffer is full.

    Attributes:
        moves: Where each is in the buffer.
    """

    def __init__(self, source: ByteSource, buffer_nbytes: int) -> None:
        self._source = source
        self._buffer_nbytes = buffer_nbytes
        self._runs: list[Run] = []
        self.moves: list[Move] = []

    def add(self, part: Part) -> bool:
        """Add a tensor; False if the buffer has no room for it."""
        nbytes = len(part.span)
        last = self._runs[-1] if self._runs else _NO_RUN
        # It may follow the last one in the buffer if it does so in the file
        is_next = last.offset + last.stop - last.start == part.span.start and last.stop % part.itemsize == 0
        start = last.stop if is_next else -(-last.stop // ALIGNMENT) * ALIGNMENT
        stop = start + nbytes
        if stop > self._buffer_nbytes:
            return False
        if is_next and self._runs:
            self._runs[-1] = Run(last.offset, last.start, stop)
        else:
            self._runs.append(Run(part.span.start, start, stop))
        self.moves.append(Move(part.target, 0, start, stop))
        return True

    def taken(self) -> Transfer:
        """Return what was collected, and start again."""
        transfer = Transfer(self._source, tuple(self._runs), tuple(self.moves))
        self._runs, self.moves = [], []
        return transfer

"""What each rank would read from a checkpoint: bytes and requests, before any is made.

All tensors are computed together, as columns of numbers, so a rank's share of 100,000 tensors takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Final

import msgspec
import numpy as np

from tensorkeep.arrays.elements import known_dtype
from tensorkeep.checkpoint.read_plans._boxes import Boxes, Cut, Numbers, PartGroups, StoredPart, column, cuts_of
from tensorkeep.limits import GAP_NBYTES, READ_NBYTES
from tensorkeep.tensors import AssembledReader, LazyTensor, Placement, Region, Sharded
from tensorkeep.transport import ByteRange

MAX_OVER_READ: Final = 0.1
"""Unwanted bytes that may be read along, as a fraction of the wanted ones."""


class RankReads(msgspec.Struct, frozen=True):
    """What one rank would read.

    Attributes:
        rank: Number of the rank.
        n_tensors: Tensors that it has a share of.
        wanted_nbytes: Bytes of its shares.
        nbytes: Bytes that it would read.
        n_requests: Reads, or requests to a server.
    """

    rank: int
    n_tensors: int
    wanted_nbytes: int
    nbytes: int
    n_requests: int


def parts_of(tensors: Mapping[str, LazyTensor]) -> Iterator[StoredPart]:
    """Yield where tensors are stored; those that are cast or gathered are left out."""
    for name, lazy in tensors.items():
        reader = lazy.reader
        pieces = reader.placed if isinstance(reader, AssembledReader) else None
        whole = Region((0,) * lazy.ndim, lazy.shape)
        stored = [(whole, lazy)] if pieces is None else [(piece.region, piece.open()) for piece in pieces]
        for region, piece in stored:
            if piece.source is not None and piece.span is not None and piece.nbytes:
                bits = known_dtype(name, piece.entry).bits
                yield StoredPart(name, lazy.shape, region, bits, piece.source.name, piece.span.start)


def sharded_along(dim: int) -> Callable[[str, tuple[int, ...]], tuple[Placement, ...]]:
    """Return placements on a one-dimensional mesh that cut each tensor along dimension `dim`."""

    def placements(_: str, shape: tuple[int, ...]) -> tuple[Placement, ...]:
        return (Sharded(dim) if dim < len(shape) else None,)

    return placements


class RankPlan:
    """What each rank of a mesh would read."""

    def __init__(
        self,
        parts: Iterable[StoredPart],
        mesh: Sequence[int],
        placements: Callable[[str, tuple[int, ...]], Sequence[Placement]],
        *,
        max_gap_nbytes: int = GAP_NBYTES,
        max_nbytes: int = READ_NBYTES,
        max_over_read: float = MAX_OVER_READ,
    ) -> None:
        self.mesh = tuple(mesh)
        self._max_gap_nbytes, self._max_nbytes, self._max_over_read = max_gap_nbytes, max_nbytes, max_over_read
        ordered = sorted(parts, key=lambda part: (part.file, part.start))
        self._groups = PartGroups(self.mesh, max_gap_nbytes, max_over_read)
        cuts: dict[str, tuple[Cut, ...]] = {}
        for part in ordered:
            if part.tensor not in cuts:
                cuts[part.tensor] = cuts_of(part.shape, self.mesh, placements(part.tensor, part.shape))
        self._group = column(self._groups.number(part, cuts[part.tensor]) for part in ordered)
        self._groups.complete()
        files: dict[str, int] = {}
        tensors: dict[str, int] = {}
        self._file = column(files.setdefault(part.file, len(files)) for part in ordered)
        self._tensor = column(tensors.setdefault(part.tensor, len(tensors)) for part in ordered)
        self._start = column(part.start for part in ordered)
        self._files = list(files)
        self._n_in_group = np.bincount(self._group, minlength=len(self._groups))
        self._starts_file = self._file[1:] != self._file[:-1]

    @property
    def n_ranks(self) -> int:
        """Number of ranks in the mesh."""
        return prod(self.mesh)

    def reads_of(self, rank: int) -> RankReads:
        """Return what one rank would read."""
        boxes = self._groups.boxes(rank)
        starts, stops, _ = self._joined_reads(boxes)
        joined = stops - starts
        n_separate = (boxes.needs_separate_reads * self._n_in_group) * boxes.n_runs
        has_some = np.zeros(self._tensor.max(initial=-1) + 1, np.bool_)
        has_some[self._tensor[(boxes.wanted > 0)[self._group]]] = True
        return RankReads(
            rank=rank,
            n_tensors=int(has_some.sum()),
            wanted_nbytes=int((boxes.wanted * self._n_in_group).sum()),
            nbytes=int(joined.sum() + (n_separate * boxes.run_nbytes).sum()),
            n_requests=int(
                (-(-joined // self._max_nbytes)).sum() + (n_separate * -(-boxes.run_nbytes // self._max_nbytes)).sum()
            ),
        )

    def ranges_of(self, rank: int) -> dict[str, list[ByteRange]]:
        """Return the byte ranges that one rank would read, per file."""
        boxes = self._groups.boxes(rank)
        columns = (column.tolist() for column in reversed(self._joined_reads(boxes)))
        found = [(file, start, stop) for file, stop, start in zip(*columns, strict=True)]
        for row in np.flatnonzero(boxes.needs_separate_reads[self._group]).tolist():
            group, file, base = (int(column[row]) for column in (self._group, self._file, self._start))
            nbytes = int(boxes.run_nbytes[group])
            found += [(file, base + start, base + start + nbytes) for start in boxes.runs(group)]
        ranges: dict[str, list[ByteRange]] = {}
        for file, start, stop in sorted(found):
            ranges.setdefault(self._files[file], []).append(ByteRange(start, stop))
        return ranges

    def _joined_reads(self, boxes: Boxes) -> tuple[Numbers, Numbers, Numbers]:
        """Return first byte, byte after the last and file of each read that joins neighboring parts."""
        is_taken = (boxes.wanted > 0) & ~boxes.needs_separate_reads
        group, base, file, starts_file = self._group, self._start, self._file, self._starts_file
        if not is_taken.all():
            chosen = np.flatnonzero(is_taken[group])
            group, base, file = group[chosen], base[chosen], file[chosen]
            starts_file = file[1:] != file[:-1]
        start, stop, wanted = base + boxes.start[group], base + boxes.stop[group], boxes.wanted[group]
        near = np.minimum(self._max_gap_nbytes, self._max_over_read / 4 * (wanted[1:] + wanted[:-1]))
        is_first = np.ones(len(start), np.bool_)
        is_first[1:] = starts_file | (start[1:] - stop[:-1] > near)
        is_last = np.ones(len(start), np.bool_)
        is_last[:-1] = is_first[1:]
        return start[is_first], stop[is_last], file[is_first]

"""A rank's share of the stored parts of tensors, as columns of numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.tensors import Placement, Region, coordinate_of, positions_of_rank, region_of_rank

Numbers = npt.NDArray[np.int64]

Cut = tuple[int, tuple[tuple[int, int], ...]]
"""Extent of a dimension, and for each cut through it the mesh dimension and split factor."""


class StoredPart(msgspec.Struct, frozen=True):
    """A part of a tensor that a file stores in C order.

    Attributes:
        tensor: Name of the tensor.
        shape: Shape of the whole tensor, in elements.
        region: The part.
        bits: Bits of one element.
        file: Path of the file.
        start: First byte in the file.
    """

    tensor: str
    shape: tuple[int, ...]
    region: Region
    bits: int
    file: str
    start: int


def column(numbers: Iterable[int]) -> Numbers:
    """Return numbers as an array."""
    return np.fromiter(numbers, np.int64)


def cuts_of(shape: tuple[int, ...], mesh: Sequence[int], placements: Sequence[Placement]) -> tuple[Cut, ...]:
    """Return the cuts through each dimension of a tensor."""
    region_of_rank(shape, mesh, placements, 0)  # refuses placements that do not fit
    cuts: list[list[tuple[int, int]]] = [[] for _ in shape]
    for axis, placement in enumerate(placements):
        if placement is not None:
            cuts[placement.dim].append((axis, placement.split_factor))
    return tuple((extent, tuple(cut)) for extent, cut in zip(shape, cuts, strict=True))


class PartGroups:
    """Parts that are read alike: same size, offset, dtype and cuts. Models have few groups; each is one row."""

    def __init__(self, mesh: tuple[int, ...], max_gap_nbytes: int, max_over_read: float) -> None:
        self._mesh, self._max_gap_nbytes, self._max_over_read = mesh, max_gap_nbytes, max_over_read
        self._rows: dict[tuple[Region, tuple[Cut, ...], int], int] = {}
        self._cuts: dict[Cut, int] = {(1, ()): 0}

    def __len__(self) -> int:
        return len(self._rows)

    def number(self, part: StoredPart, cuts: tuple[Cut, ...]) -> int:
        """Return the number of a part's group."""
        return self._rows.setdefault((part.region, cuts, part.bits), len(self._rows))

    def complete(self) -> None:
        """Turn all groups into columns."""
        n_axes = max((len(cuts) for _, cuts, _ in self._rows), default=0) or 1

        def table(rows: Iterable[Sequence[int]], fill: int) -> Numbers:
            return np.array([[*row, *[fill] * (n_axes - len(row))] for row in rows], np.int64).reshape(-1, n_axes)

        numbers = [[self._cuts.setdefault(cut, len(self._cuts)) for cut in cuts] for _, cuts, _ in self._rows]
        self._cut = table(numbers, 0)
        self._sizes = table((region.shape for region, _, _ in self._rows), 1)
        self._offsets = table((region.starts for region, _, _ in self._rows), 0)
        self._bits = column(bits for _, _, bits in self._rows)
        ones = np.ones(len(self._rows), np.int64)
        self._strides = np.cumprod(np.c_[ones, self._sizes[:, :0:-1]], axis=1)[:, ::-1]

    def boxes(self, rank: int) -> Boxes:
        """Return a rank's share of a part of each group."""
        coordinate = coordinate_of(rank, self._mesh)
        held = [
            positions_of_rank(extent, [(coordinate[axis], self._mesh[axis], factor) for axis, factor in cuts])
            for extent, cuts in self._cuts
        ]
        first, last = (column(getattr(part, end) for part in held) for end in ("start", "stop"))
        low = np.maximum(first[self._cut] - self._offsets, 0)
        high = np.minimum(last[self._cut] - self._offsets, self._sizes)
        extents = np.maximum(high - low, 0)
        is_cut = extents < self._sizes
        axis = np.where(is_cut.any(axis=1), is_cut.shape[1] - 1 - is_cut[:, ::-1].argmax(axis=1), 0)
        rows = np.arange(len(axis))
        n_elements, run = extents.prod(axis=1), extents[rows, axis] * self._strides[rows, axis]
        gap = (self._sizes - extents)[rows, axis] * self._strides[rows, axis] * self._bits // 8
        start = (low * self._strides).sum(axis=1) * self._bits // 8
        stop = -(-(((high - 1) * self._strides).sum(axis=1) + 1) * self._bits // 8)
        wanted = n_elements * self._bits // 8
        n_runs = n_elements // np.maximum(run, 1)
        too_much = stop - start - wanted > self._max_over_read / 2 * wanted
        needs_separate_reads = (n_runs > 1) & ((gap > self._max_gap_nbytes) | too_much)
        strides = self._strides * self._bits[:, None] // 8
        run_nbytes = -(-run * self._bits // 8)
        return Boxes(start, stop, wanted, n_runs, run_nbytes, needs_separate_reads, extents, strides, axis)


class Boxes(msgspec.Struct, frozen=True, eq=False):
    """A rank's share of a part of each group. Columns have shape (n_groups,); bytes count from the part's first.

    Attributes:
        start: First byte.
        stop: One past the last byte.
        wanted: Bytes of the share; 0 if the rank has nothing of the part.
        n_runs: Number of contiguous runs in it.
        run_nbytes: Bytes of each run.
        needs_separate_reads: Whether runs are read one by one, because too many unwanted bytes lie between them.
        extents: Elements along each dimension, shape (n_groups, n_axes).
        strides: Bytes between neighbors along each dimension, shape (n_groups, n_axes).
        axis: The last dimension that is not whole.
    """

    start: Numbers
    stop: Numbers
    wanted: Numbers
    n_runs: Numbers
    run_nbytes: Numbers
    needs_separate_reads: npt.NDArray[np.bool_]
    extents: Numbers
    strides: Numbers
    axis: Numbers

    def runs(self, group: int) -> list[int]:
        """Return the first byte of each run."""
        starts = self.start[group : group + 1]
        axis = int(self.axis[group])
        for extent, stride in zip(self.extents[group, :axis], self.strides[group, :axis], strict=True):
            starts = (starts[:, None] + np.arange(extent) * stride).reshape(-1)
        found: list[int] = starts.tolist()
        return found

"""Which part of a tensor one rank has, when a mesh of ranks has it in parts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

import msgspec

from tensorkeep.tensors import Region, shard_range


class Cut(msgspec.Struct, frozen=True):
    """One dimension of a mesh that cuts a dimension of the tensor.

    Attributes:
        axis: The dimension of the tensor.
        place: Of the rank along the dimension of the mesh.
        n_places: Ranks along it.
        split_factor: Into how many blocks the positions are cut before each of them is; 1 but for the strided shards
            that FSDP2 and tensor parallelism make together.
    """

    axis: int
    place: int
    n_places: int
    split_factor: int = 1


class LocalPart(msgspec.Struct, frozen=True):
    """A region of the tensor, and where it stands in what the rank has.

    Attributes:
        region: Of the tensor.
        index: Of the local tensor.
    """

    region: Region
    index: tuple[slice, ...]


def local_parts(shape: tuple[int, ...], cuts: Iterable[Cut]) -> Iterator[LocalPart]:
    """Give what a rank has."""
    runs = [[range(extent)] for extent in shape]
    for cut in cuts:
        runs[cut.axis] = list(_cut(runs[cut.axis], cut))
    for chosen in product(*(_placed(axis) for axis in runs)):
        starts = tuple(run.start for run, _ in chosen)
        yield LocalPart(Region(starts, tuple(run.stop for run, _ in chosen)), tuple(index for _, index in chosen))


def _cut(runs: list[range], cut: Cut) -> Iterator[range]:
    """Give the positions that are left to the rank, neighbours as one run."""
    n_positions = sum(map(len, runs))
    left: list[range] = []
    for number in range(cut.split_factor):
        block = shard_range(n_positions, number, cut.split_factor)
        own = shard_range(len(block), cut.place, cut.n_places)
        for run in _taken(runs, block.start + own.start, block.start + own.stop):
            if left and left[-1].stop == run.start:
                left[-1] = range(left[-1].start, run.stop)
            else:
                left.append(run)
    yield from left or [range(0)]


def _taken(runs: list[range], start: int, stop: int) -> Iterator[range]:
    """Give the runs of the positions from one place in their order to another."""
    done = 0
    for run in runs:
        part = run[max(start - done, 0) : max(stop - done, 0)]
        if part:
            yield part
        done += len(run)


def _placed(runs: list[range]) -> Iterator[tuple[range, slice]]:
    done = 0
    for run in runs:
        yield run, slice(done, done + len(run))
        done += len(run)

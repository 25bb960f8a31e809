"""The part of a tensor that one rank of a device mesh has. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

import msgspec

from tensorkeep.tensors import Region, shard_range


class Cut(msgspec.Struct, frozen=True):
    """A dimension of the mesh that shards a dimension of the tensor.

    Attributes:
        axis: The dimension of the tensor.
        place: The rank's coordinate along the dimension of the mesh.
        n_places: Ranks along that dimension.
        split_factor: Blocks into which the axis is cut before each block is sharded; 1 except for the strided shards
            of FSDP2 combined with tensor parallelism.
    """

    axis: int
    place: int
    n_places: int
    split_factor: int = 1


class LocalPart(msgspec.Struct, frozen=True):
    """A region of the tensor that the rank has.

    Attributes:
        region: In the whole tensor.
        index: In the local tensor.
    """

    region: Region
    index: tuple[slice, ...]


def local_parts(shape: tuple[int, ...], cuts: Iterable[Cut]) -> Iterator[LocalPart]:
    """Give the regions that a rank has after all cuts."""
    runs = [[range(extent)] for extent in shape]
    for cut in cuts:
        runs[cut.axis] = list(_cut(runs[cut.axis], cut))
    for chosen in product(*(_placed(axis) for axis in runs)):
        starts = tuple(run.start for run, _ in chosen)
        yield LocalPart(Region(starts, tuple(run.stop for run, _ in chosen)), tuple(index for _, index in chosen))


def _cut(runs: list[range], cut: Cut) -> Iterator[range]:
    """Give the positions that remain for the rank, neighboring ones as one run."""
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
    """Give the runs that hold the positions numbered from start to stop."""
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

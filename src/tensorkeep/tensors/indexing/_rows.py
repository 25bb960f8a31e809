"""Where a region's bytes are in its tensor. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from math import prod

import msgspec

from tensorkeep.tensors.indexing._regions import Region


class Rows(msgspec.Struct, frozen=True):
    """Runs of bytes of equal length at equal distances.

    Attributes:
        first: First byte of the first run, counted from the start of the tensor.
        step: Bytes from the start of one run to the start of the next.
        n_rows: Number of runs.
        nbytes: Bytes of each run.
    """

    first: int
    step: int
    n_rows: int
    nbytes: int


def rows_of(region: Region, shape: tuple[int, ...], itemsize: int) -> Iterator[Rows]:
    """Give the runs of bytes of a region in its tensor."""
    sizes = region.shape
    cut = max((axis for axis, size in enumerate(sizes) if size != shape[axis]), default=0)
    strides = [prod(shape[axis + 1 :]) * itemsize for axis in range(len(shape))]
    origin = sum(start * stride for start, stride in zip(region.starts, strides, strict=True))
    nbytes = prod(sizes[cut:]) * itemsize
    outer = [axis for axis in range(cut) if sizes[axis] > 1]
    if not outer:
        yield Rows(origin, nbytes, 1, nbytes)
        return
    *others, last = outer
    for places in product(*(range(sizes[axis]) for axis in others)):
        first = origin + sum(place * strides[axis] for place, axis in zip(places, others, strict=True))
        yield Rows(first, strides[last], sizes[last], nbytes)


def rows_within(rows: Iterable[Rows], start: int, stop: int) -> Iterator[Rows]:
    """Give the runs of the bytes [start, stop) of others, as these count them one after another."""
    passed = 0
    for each in rows:
        first, last = max(start - passed, 0), min(stop - passed, each.n_rows * each.nbytes)
        passed += each.n_rows * each.nbytes
        while first < last:
            row, within = divmod(first, each.nbytes)
            is_cut = within > 0 or last - first < each.nbytes
            n_rows, nbytes = (
                (1, min(each.nbytes - within, last - first))
                if is_cut
                else (
                    (last - first) // each.nbytes,
                    each.nbytes,
                )
            )
            yield Rows(each.first + row * each.step + within, each.step, n_rows, nbytes)
            first += n_rows * nbytes
        if passed >= stop:
            return


def narrowed(region: Region, index: tuple[int | slice, ...]) -> Region:
    """Return the part of a region that an index selects; a dimension that is indexed by a number gets extent 1."""
    starts, stops = list(region.starts), list(region.stops)
    for axis, taken in enumerate(index):
        first, last = (taken, taken + 1) if isinstance(taken, int) else (taken.start, taken.stop)
        starts[axis], stops[axis] = region.starts[axis] + first, region.starts[axis] + last
    return Region(tuple(starts), tuple(stops))

"""Rectangular parts of a tensor, and whether several cover it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from operator import lt
from typing import Final, Literal

import msgspec

from tensorkeep.errors import LimitError, SelectionError

_MAX_STEPS: Final = 50_000_000
"""Comparisons of two regions; the shards of any mesh need two or three each."""


class Region(msgspec.Struct, frozen=True, order=True):
    """A half-open range of positions along each dimension; regions sort by their first elements in C order.

    Attributes:
        starts: First position along each dimension.
        stops: One past the last position along each dimension.
    """

    starts: tuple[int, ...]
    stops: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each dimension."""
        return tuple(stop - start for start, stop in zip(self.starts, self.stops, strict=True))

    @property
    def n_elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def index(self) -> tuple[slice, ...]:
        """The index that selects it."""
        return tuple(map(slice, self.starts, self.stops))

    def common(self, other: Region) -> Region | None:
        """Return the intersection; None if it is empty."""
        starts = tuple(map(max, self.starts, other.starts))
        stops = tuple(map(min, self.stops, other.stops))
        return Region(starts, stops) if all(map(lt, starts, stops)) else None

    def without(self, inner: Region) -> list[Region]:
        """Return what is left without a region inside it, as at most two regions for each dimension."""
        left: list[Region] = []
        starts, stops = self.starts, self.stops
        for axis, (start, stop) in enumerate(zip(inner.starts, inner.stops, strict=True)):
            if starts[axis] < start:
                left.append(Region(starts, (*stops[:axis], start, *stops[axis + 1 :])))
            if stop < stops[axis]:
                left.append(Region((*starts[:axis], stop, *starts[axis + 1 :]), stops))
            starts = (*starts[:axis], start, *starts[axis + 1 :])
            stops = (*stops[:axis], stop, *stops[axis + 1 :])
        return left

    def __str__(self) -> str:
        return "[" + ", ".join(f"{start}:{stop}" for start, stop in zip(self.starts, self.stops, strict=True)) + "]"


def run_of(region: Region, shape: tuple[int, ...]) -> range | None:
    """Return the elements of a region as a range in C order; None if they are not contiguous."""
    sizes = region.shape
    cut = next((axis for axis, size in enumerate(sizes) if size != 1), len(sizes))
    if sizes[cut + 1 :] != shape[cut + 1 :]:
        return None
    first = sum(start * prod(shape[axis + 1 :]) for axis, start in enumerate(region.starts))
    return range(first, first + region.n_elements)


class CoverFault(msgspec.Struct, frozen=True):
    """Why regions do not cover a tensor, each element once.

    Attributes:
        kind: `"missing"`: no region has these elements; `"overlap"`: two have; `"outside"`: not in the tensor.
        region: The elements.
    """

    kind: Literal["missing", "overlap", "outside"]
    region: Region


def cover_fault(shape: tuple[int, ...], regions: Iterable[Region]) -> CoverFault | None:
    """Say why regions do not cover a tensor, each element once; None if they do."""
    left = [Region((0,) * len(shape), shape)] if prod(shape) else []
    n_steps = 0
    for region in sorted(region for region in regions if region.n_elements):
        if len(region.stops) != len(shape) or min(region.starts, default=0) < 0 or any(map(lt, shape, region.stops)):
            return CoverFault("outside", region)
        n_left = region.n_elements
        rest: list[Region] = []
        for part in left:
            common = part.common(region) if n_left else None
            if common is None:
                rest.append(part)
            else:
                n_left -= common.n_elements
                rest += part.without(common)
        if n_left:
            return CoverFault("overlap", region)
        n_steps += len(left)
        if n_steps > _MAX_STEPS:
            raise LimitError("the pieces of a tensor are cut in a way that takes too long to check")
        left = rest
    return CoverFault("missing", min(left)) if left else None


def shard_range(extent: int, rank: int, world: int) -> range:
    """Return a rank's positions of a dimension, cut as `torch.chunk` and DTensor's `Shard` cut it.

    Each rank gets ceil(extent / world); the last that gets any may get fewer, and ranks after it get none.
    """
    if not 0 <= rank < world:
        raise SelectionError(f"there is no rank {rank} of {world}", expected=f"0 to {world - 1}", found=str(rank))
    size = -(-extent // world)
    return range(min(rank * size, extent), min((rank + 1) * size, extent))

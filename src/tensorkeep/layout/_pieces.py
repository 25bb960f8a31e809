"""Pieces of tensors that are split over several files; the name of each stored piece says which part it is. Pure.

A piece is a half-open range along the leading dimensions of its tensor and everything along the others:
`big.weight[0:15000]` is a block of rows, `big.weight[0:4,8:16]` a tile. A tensor larger than a shard is cut into
rows; tiles are what the ranks of a distributed run hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import zip_longest
from math import gcd

import msgspec

from tensorkeep.errors import LimitError
from tensorkeep.tensors import Region, cover_fault

_RANGE = "[0-9]{1,19}:[0-9]{1,19}"
_match = re.compile(rf"(?P<tensor>.*)\[(?P<ranges>{_RANGE}(?:,{_RANGE}){{0,63}})\]", re.DOTALL).fullmatch


class TensorSize(msgspec.Struct, frozen=True):
    """What a shard plan needs to know about a tensor.

    Attributes:
        nbytes: Bytes of the tensor in a file.
        shape: Elements along each dimension.
    """

    nbytes: int
    shape: tuple[int, ...]

    @property
    def rows_per_step(self) -> int:
        """Fewest rows that fill whole bytes: 1, unless elements are narrower than a byte."""
        return self.shape[0] // gcd(self.nbytes, self.shape[0])


class Piece(msgspec.Struct, frozen=True):
    """A part of a tensor.

    Attributes:
        tensor: Name of the whole tensor.
        region: The part, along the leading dimensions; it spans the dimensions that it leaves out.
    """

    tensor: str
    region: Region

    @classmethod
    def of_rows(cls, tensor: str, start: int, stop: int) -> Piece:
        """Return the rows from `start` to `stop`, half-open."""
        return cls(tensor, Region((start,), (stop,)))

    @classmethod
    def of(cls, tensor: str, region: Region, shape: tuple[int, ...]) -> Piece:
        """Return a piece without the trailing dimensions that it spans."""
        n_named = len(shape)
        while n_named and (region.starts[n_named - 1], region.stops[n_named - 1]) == (0, shape[n_named - 1]):
            n_named -= 1
        return cls(tensor, Region(region.starts[:n_named], region.stops[:n_named]))

    def region_in(self, shape: tuple[int, ...]) -> Region:
        """Return the region along all dimensions of a tensor of this shape."""
        n_named = len(self.region.stops)
        rest = shape[n_named:]
        return Region((*self.region.starts, *(0 for _ in rest)), (*self.region.stops, *rest))

    @property
    def name(self) -> str:
        """Name in the shard, such as `big.weight[0:15000]`; the tensor's own name if the piece is all of it."""
        if not self.region.starts:
            return self.tensor
        ranges = (f"{start}:{stop}" for start, stop in zip(self.region.starts, self.region.stops, strict=True))
        return f"{self.tensor}[{','.join(ranges)}]"

    @property
    def is_of_rows(self) -> bool:
        """Whether the piece is a block of whole rows."""
        return len(self.region.starts) == 1

    @property
    def start(self) -> int:
        """First row."""
        return self.region.starts[0]

    @property
    def stop(self) -> int:
        """Row after the last one."""
        return self.region.stops[0]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.stop - self.start


def cut(tensor: str, size: TensorSize, max_nbytes: int) -> tuple[Piece, ...]:
    """Cut a tensor along dimension 0 into the largest pieces of at most `max_nbytes`."""
    if not size.shape or not size.nbytes:
        return ()
    n_rows, step = size.shape[0], size.rows_per_step
    step_nbytes = size.nbytes * step // n_rows
    rows = step * max(1, max_nbytes // step_nbytes)
    return tuple(Piece.of_rows(tensor, start, min(start + rows, n_rows)) for start in range(0, n_rows, rows))


def pieces_in_order(tensor: str, names: Iterable[str]) -> tuple[Piece, ...] | None:
    """Parse the names of a tensor's pieces; None unless they are in order and cover the tensor once."""
    pieces = []
    for name in names:
        found = _match(name)
        if found is None or found["tensor"] != tensor:
            return None
        ranges = [tuple(map(int, text.split(":"))) for text in found["ranges"].split(",")]
        piece = Piece(tensor, Region(tuple(start for start, _ in ranges), tuple(stop for _, stop in ranges)))
        if piece.name != name or not all(start < stop for start, stop in ranges):
            return None
        pieces.append(piece)
    return tuple(pieces) if _are_whole(pieces) else None


def _are_whole(pieces: list[Piece]) -> bool:
    """Say whether pieces are in order and cover what they reach, each element once."""
    reach = reach_of(pieces)
    regions = [piece.region_in(reach) for piece in pieces]
    try:
        return bool(regions) and regions == sorted(regions) and cover_fault(reach, regions) is None
    except LimitError:
        return False


def reach_of(pieces: Iterable[Piece]) -> tuple[int, ...]:
    """Return the smallest shape that contains all pieces, along the dimensions that they name."""
    return tuple(map(max, zip_longest(*(piece.region.stops for piece in pieces), fillvalue=0)))

"""Pieces of tensors that stand in several files, stored as tensors whose names say which part they are. Pure.

A piece is a range along the first dimensions of its tensor, and all of the others: `big.weight[0:15000]` are rows,
`big.weight[0:4,8:16]` a tile. A tensor that is larger than a shard is cut by rows; tiles are what ranks have of it.
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
    """All that a plan needs to know of a tensor.

    Attributes:
        nbytes: Bytes of the tensor in a file.
        shape: Elements along each dimension.
    """

    nbytes: int
    shape: tuple[int, ...]

    @property
    def rows_per_step(self) -> int:
        """Fewest rows of dimension 0 that fill whole bytes: 1, but for elements narrower than a byte."""
        return self.shape[0] // gcd(self.nbytes, self.shape[0])


class Piece(msgspec.Struct, frozen=True):
    """A part of a tensor.

    Attributes:
        tensor: Name of the whole tensor.
        region: The part; along dimensions that it does not speak of it is all of the tensor.
    """

    tensor: str
    region: Region

    @classmethod
    def of_rows(cls, tensor: str, start: int, stop: int) -> Piece:
        """Return a piece of some rows."""
        return cls(tensor, Region((start,), (stop,)))

    @classmethod
    def of(cls, tensor: str, region: Region, shape: tuple[int, ...]) -> Piece:
        """Return a piece that does not speak of the last dimensions, where it is all of the tensor."""
        n_named = len(shape)
        while n_named and (region.starts[n_named - 1], region.stops[n_named - 1]) == (0, shape[n_named - 1]):
            n_named -= 1
        return cls(tensor, Region(region.starts[:n_named], region.stops[:n_named]))

    def region_in(self, shape: tuple[int, ...]) -> Region:
        """Return the part along all dimensions."""
        n_named = len(self.region.stops)
        rest = shape[n_named:]
        return Region((*self.region.starts, *(0 for _ in rest)), (*self.region.stops, *rest))

    @property
    def name(self) -> str:
        """The name in the shard, such as `big.weight[0:15000]`; that of the tensor where the piece is all of it."""
        if not self.region.starts:
            return self.tensor
        ranges = (f"{start}:{stop}" for start, stop in zip(self.region.starts, self.region.stops, strict=True))
        return f"{self.tensor}[{','.join(ranges)}]"

    @property
    def is_of_rows(self) -> bool:
        """Whether it is some rows, and all of each."""
        return len(self.region.starts) == 1

    @property
    def start(self) -> int:
        """First row of dimension 0."""
        return self.region.starts[0]

    @property
    def stop(self) -> int:
        """Row of dimension 0 after the last one."""
        return self.region.stops[0]

    @property
    def n_rows(self) -> int:
        """Rows of dimension 0."""
        return self.stop - self.start


def cut(tensor: str, size: TensorSize, max_nbytes: int) -> tuple[Piece, ...]:
    """Cut a tensor along dimension 0 into pieces that fit, as large as they can be."""
    if not size.shape or not size.nbytes:
        return ()
    n_rows, step = size.shape[0], size.rows_per_step
    step_nbytes = size.nbytes * step // n_rows
    rows = step * max(1, max_nbytes // step_nbytes)
    return tuple(Piece.of_rows(tensor, start, min(start + rows, n_rows)) for start in range(0, n_rows, rows))


def pieces_in_order(tensor: str, names: Iterable[str]) -> tuple[Piece, ...] | None:
    """Read the names of a tensor's pieces."""
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
    """Say whether pieces are in order, and all of what they reach to."""
    reach = reach_of(pieces)
    regions = [piece.region_in(reach) for piece in pieces]
    try:
        return bool(regions) and regions == sorted(regions) and cover_fault(reach, regions) is None
    except LimitError:
        return False


def reach_of(pieces: Iterable[Piece]) -> tuple[int, ...]:
    """Return the extents of a tensor along the dimensions that its pieces speak of."""
    return tuple(map(max, zip_longest(*(piece.region.stops for piece in pieces), fillvalue=0)))

"""What each of many ranks would read of a checkpoint: bytes and requests, before any is made.

All tensors are looked at together, as columns of numbers, so a rank's share of 100,000 tensors takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.arrays.elements import known_dtype
from tensorkeep.limits import GAP_NBYTES, READ_NBYTES
from tensorkeep.tensors import (
    AssembledReader,
    LazyTensor,
    Placement,
    Region,
    Sharded,
    coordinate_of,
    positions_of_rank,
    region_of_rank,
)
from tensorkeep.transport import ByteRange

__all__ = ["RankPlan", "RankReads", "StoredPart", "parts_of", "sharded_along"]

Numbers = npt.NDArray[np.int64]

MAX_OVER_READ: Final = 0.1
"""Unwanted bytes that may come with wanted ones, as a share of these."""


class StoredPart(msgspec.Struct, frozen=True):
    """A part of a tensor that stands in C order in a file.

    Attributes:
        tensor: Name of the tensor.
        shape: That of the tensor, elements along each dimension.
        region: The part.
        bits: Bits of one element.
        file: Path of the file.
        start: First byte in it.
    """

    tensor: str
    shape: tuple[int, ...]
    region: Region
    bits: int
    file: str
    start: int


class RankReads(msgspec.Struct, frozen=True):
    """What one rank would read.

    Attributes:
        rank: Which.
        n_tensors: Tensors that it has something of.
        wanted_nbytes: Bytes of what it has.
        nbytes: Bytes that it would read.
        n_requests: Reads, or requests to a server.
    """

    rank: int
    n_tensors: int
    wanted_nbytes: int
    nbytes: int
    n_requests: int


def parts_of(tensors: Mapping[str, LazyTensor]) -> Iterator[StoredPart]:
    """Say where tensors stand; those that are cast, or gathered from here and there, are left out.

    Args:
        tensors: Name to lazy tensor.

    Raises:
        DtypeError: If a dtype is unknown here.
        TensorkeepError: If a part of a tensor cannot be opened.
    """
    for name, lazy in tensors.items():
        reader = lazy.reader
        pieces = reader.placed if isinstance(reader, AssembledReader) else None
        whole = Region((0,) * lazy.ndim, lazy.shape)
        for region, piece in [(whole, lazy)] if pieces is None else [(it.region, it.open()) for it in pieces]:
            if piece.source is not None and piece.span is not None and piece.nbytes:
                bits = known_dtype(name, piece.entry).bits
                yield StoredPart(name, lazy.shape, region, bits, piece.source.name, piece.span.start)


def sharded_along(dim: int) -> Callable[[str, tuple[int, ...]], tuple[Placement, ...]]:
    """Return placements on a mesh of one dimension that cut each tensor along one of its own.

    Args:
        dim: Which; tensors that have no such dimension are on each rank whole.
    """

    def placements(_: str, shape: tuple[int, ...]) -> tuple[Placement, ...]:
        return (Sharded(dim) if dim < len(shape) else None,)

    return placements


class RankPlan:
    """What the ranks of a mesh would read of tensors.

    Args:
        parts: Where the tensors stand.
        mesh: Ranks along each dimension of the mesh.
        placements: Gives what each dimension of the mesh does with a tensor of a name and shape.
        max_gap_nbytes: Unwanted bytes between two wanted ranges up to which one read brings both.
        max_nbytes: Bytes of one read; a longer range takes several.
        max_over_read: Unwanted bytes that may come with wanted ones, as a share of these.

    Raises:
        SelectionError: If a placement cuts a dimension that its tensor has not.
    """

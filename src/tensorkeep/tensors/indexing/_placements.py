"""Which part of a tensor a rank has, by DTensor's rules for a mesh of ranks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import msgspec

from tensorkeep.errors import SelectionError, UnsupportedError
from tensorkeep.tensors.indexing._regions import Region, shard_range


class Sharded(msgspec.Struct, frozen=True):
    """One dimension of the mesh cuts the tensor.

    Attributes:
        dim: The tensor's dimension that is cut.
        split_factor: Into how many shards a later dimension of the mesh has cut it already, as FSDP over tensor
            parallelism does (`_StridedShard`). 1 for a plain cut.
    """

    dim: int
    split_factor: int = 1


Placement = Sharded | None
"""What one dimension of the mesh does with a tensor; None if all ranks along it have the same."""


def coordinate_of(rank: int, mesh: Sequence[int]) -> tuple[int, ...]:
    """Return a rank's coordinate in a mesh, whose last dimension varies fastest."""
    if not 0 <= rank < prod(mesh):
        raise SelectionError(
            f"there is no rank {rank} of {prod(mesh)}", expected=f"0 to {prod(mesh) - 1}", found=str(rank)
        )
    return tuple(rank // prod(mesh[axis + 1 :]) % extent for axis, extent in enumerate(mesh))


def positions_of_rank(extent: int, cuts: Sequence[tuple[int, int, int]]) -> range:
    """Return a rank's positions of a dimension that is cut several times, each time what is left."""
    held = [range(extent)]
    for rank, world, split_factor in cuts:
        length = sum(map(len, held))
        first = [shard_range(length, part, split_factor) for part in range(split_factor)]
        within = (shard_range(len(part), rank, world) for part in first)
        taken = [
            range(part.start + inner.start, part.start + inner.stop)
            for part, inner in zip(first, within, strict=True)
        ]
        held = _joined([piece for part in taken for piece in _at(held, part)])
    if len(held) > 1:
        raise UnsupportedError(
            "a rank would have several ranges of one dimension",
            expected="a later dimension of the mesh that cuts the same dimension into `split_factor` shards",
            found=", ".join(f"{part.start}:{part.stop}" for part in held[:5]),
        )
    return held[0] if held else range(0)


def _at(held: Sequence[range], part: range) -> list[range]:
    """Return the positions at some indices of several ranges, laid end to end."""
    found = []
    begin = 0
    for piece in held:
        start, stop = max(part.start - begin, 0), min(part.stop - begin, len(piece))
        if start < stop:
            found.append(piece[start:stop])
        begin += len(piece)
    return found


def _joined(pieces: Sequence[range]) -> list[range]:
    joined: list[range] = []
    for piece in pieces:
        if joined and joined[-1].stop == piece.start:
            joined[-1] = range(joined[-1].start, piece.stop)
        else:
            joined.append(piece)
    return joined


def region_of_rank(shape: tuple[int, ...], mesh: Sequence[int], placements: Sequence[Placement], rank: int) -> Region:
    """Return the part of a tensor that a rank has."""
    coordinate = coordinate_of(rank, mesh)
    cuts: list[list[tuple[int, int, int]]] = [[] for _ in shape]
    for place, world, placement in zip(coordinate, mesh, placements, strict=True):
        if placement is None:
            continue
        if not 0 <= placement.dim < len(shape):
            raise SelectionError(f"there is no dimension {placement.dim} to cut", found=f"shape {list(shape)}")
        cuts[placement.dim].append((place, world, placement.split_factor))
    held = [positions_of_rank(extent, cut) for extent, cut in zip(shape, cuts, strict=True)]
    return Region(tuple(part.start for part in held), tuple(part.stop for part in held))

"""Which files several processes write together. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from tensorkeep.arrays import TensorToWrite
from tensorkeep.checkpoint.saving._shard_contents import index_of, tensors_of
from tensorkeep.layout import (
    Index,
    PiecedTensor,
    ShardRecord,
    TensorSize,
    index_name,
    index_of_pieces,
    piece_name,
    plan_shards,
    shard_name,
)
from tensorkeep.tensors import PlaceholderTensor, Prepared, Region


class MultiWriterPlan(msgspec.Struct, frozen=True):
    """Which files there will be.

    Attributes:
        files: Name of a file to name and description of what it holds.
        index_file: Name of the index; None for one file that needs none.
        index: Gives the index, from what each file is known by.
        state: What is said of the state that is saved.
        with_ties: Gives metadata that also tell which names are the same tensor; see `Prepared.with_ties`.
    """

    files: dict[str, dict[str, TensorToWrite]]
    index_file: str | None
    index: Callable[[dict[str, ShardRecord]], Index]
    state: str | None
    with_ties: Callable[[Mapping[str, str] | None], Mapping[str, str] | None]


def plan_whole(
    prepared: Prepared, *, max_shard_nbytes: int, base_name: str, variant: str | None, needs_index: bool
) -> MultiWriterPlan:
    """Plan files in which each tensor stands whole, as `save_checkpoint` writes them."""
    sizes = {name: TensorSize(host.nbytes, ()) for name, host in prepared.to_write.items()}
    plan = plan_shards(sizes, max_shard_nbytes=max_shard_nbytes, base=base_name, variant=variant)
    return MultiWriterPlan(
        {shard.file: tensors_of(shard, prepared) for shard in plan.shards},
        plan.index_file or (index_name(base_name, variant) if needs_index else None),
        lambda records: index_of(plan, prepared, records, {}),
        prepared.state,
        prepared.with_ties,
    )


def plan_pieces(
    prepared: Prepared,
    pieces: Sequence[Mapping[str, Sequence[Region]]],
    *,
    max_shard_nbytes: int,
    base_name: str,
    variant: str | None,
) -> MultiWriterPlan:
    """Plan files of which each holds what one writer has: pieces of tensors."""
    to_write = prepared.to_write
    taken = {name for of_writer in pieces for name in of_writer}
    groups: list[dict[str, TensorToWrite]] = []
    regions: dict[str, dict[Region, int]] = {name: {} for name in to_write}
    for number, of_writer in enumerate(pieces):
        own = {name: (_whole(to_write[name].shape),) for name in to_write if name not in taken} if number == 0 else {}
        room = 0
        for name, region in ((name, region) for name, parts in {**of_writer, **own}.items() for region in parts):
            host = to_write[name]
            piece = _piece_of(host, region)
            if not room or piece.nbytes > room:
                groups.append({})
                room = max_shard_nbytes
            room -= piece.nbytes
            groups[-1][piece_name(name, region, host.shape)] = piece
            regions[name][region] = len(groups) - 1
    groups = groups or [{}]
    files = [shard_name(base_name, number, len(groups), variant) for number in range(1, len(groups) + 1)]
    tensors = {
        name: PiecedTensor(host.dtype.name, host.shape, {region: files[at] for region, at in regions[name].items()})
        for name, host in to_write.items()
    }
    return MultiWriterPlan(
        dict(zip(files, groups, strict=True)),
        index_name(base_name, variant),
        lambda records: index_of_pieces(tensors, records, state=prepared.state),
        prepared.state,
        prepared.with_ties,
    )


def _whole(shape: tuple[int, ...]) -> Region:
    return Region((0,) * len(shape), shape)


def _piece_of(host: TensorToWrite, region: Region) -> TensorToWrite:
    if region.shape == host.shape:
        return host
    return PlaceholderTensor(host.dtype, region.shape, "").tensor_to_write()

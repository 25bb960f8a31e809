"""What the files of a save hold: the tensors of each shard, and the index of all. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from tensorkeep.arrays import TensorToWrite
from tensorkeep.checkpoint.saving._row_slices import rows_of
from tensorkeep.layout import Index, Shard, ShardPlan, ShardRecord
from tensorkeep.tensors import Prepared


def tensors_of(shard: Shard, prepared: Prepared) -> dict[str, TensorToWrite]:
    """Return what a shard holds."""
    to_write = {name: prepared.to_write[name] for name in shard.tensors}
    for piece in shard.pieces:
        tensor = prepared.tensors.get(piece.tensor)
        to_write[piece.name] = rows_of(tensor, prepared.to_write[piece.tensor], piece.start, piece.stop)
    return to_write


def index_of(
    plan: ShardPlan,
    prepared: Prepared,
    records: Mapping[str, ShardRecord],
    metadata: Mapping[str, Any],
) -> Index:
    """Return the index of a save."""
    to_write = prepared.to_write.values()
    totals = {
        "total_parameters": sum(prod(host.shape) for host in to_write),
        "total_size": sum(host.nbytes for host in to_write),
    }
    return Index(plan.weight_map, {**metadata, **totals}, dict(records), plan.splits, prepared.state)

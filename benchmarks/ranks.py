"""What many ranks would read of many tensors, computed without reading."""

from __future__ import annotations

from math import prod

import msgspec
from torch.distributed.tensor import Shard
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset

from benchmarks.case import AtLeast, Case, Contender, Place
from tensorkeep.checkpoint import RankPlan, StoredPart, sharded_along
from tensorkeep.tensors import Region

__all__ = ["CASES"]

_N_RANKS = 1_024
_SHAPES = ((4_096, 4_096), (14_336, 4_096), (4_096, 14_336), (4_096,), (1_024, 4_096))


class _Model(msgspec.Struct, frozen=True):
    """Tensors in files, and the plan of them."""

    parts: list[StoredPart]
    plan: RankPlan


def _prepare(place: Place) -> _Model:
    parts = []
    ends: dict[str, int] = {}
    for number in range(place.size(100_000, 1_000)):
        shape, file = _SHAPES[number % len(_SHAPES)], f"model-{number // 500:05}.safetensors"
        whole = Region((0,) * len(shape), shape)
        parts.append(StoredPart(f"layer.{number}", shape, whole, 16, file, ends.get(file, 0)))
        ends[file] = ends.get(file, 0) + 2 * prod(shape)
    return _Model(parts, _plan(parts))


def _plan(parts: list[StoredPart]) -> RankPlan:
    return RankPlan(parts, (_N_RANKS,), sharded_along(0))


def _of_one(model: _Model) -> object:
    return model.plan.reads_of(_N_RANKS // 2)


def _of_all(model: _Model) -> object:
    plan = _plan(model.parts)
    return [plan.reads_of(rank) for rank in range(_N_RANKS)]


def _by_torch(model: _Model) -> object:
    """Compute the start and shape of each local tensor of one rank, without files or requests."""
    place, placements = [_N_RANKS // 2], [Shard(0)]
    return [
        _compute_local_shape_and_global_offset(part.shape, (_N_RANKS,), place, placements) for part in model.parts
    ]


_PEER = Contender("torch: local shapes and offsets of one rank", _by_torch)

CASES = (
    Case(
        name="ranks/one",
        title="plan one of 1,024 ranks' reads of 100,000 tensors: bytes and requests",
        prepare=_prepare,
        ours=Contender("tensorkeep", _of_one),
        peers=(_PEER,),
        target=AtLeast(10.0),
        rounds=5,
        has_memory=False,
    ),
    Case(
        name="ranks/all",
        title="the same for all 1,024 ranks, with the setup",
        prepare=_prepare,
        ours=Contender("tensorkeep", _of_all),
        peers=(_PEER,),
        rounds=3,
        has_memory=False,
        remark="Here too, the peer computes only one rank. Ours should stay under 10 s.",
    ),
)

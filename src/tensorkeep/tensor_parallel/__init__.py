"""Checkpoints for tensor parallelism: a directory for each rank, which it reads alone.

- `_rules`: how a tensor is divided. Pure.
- `_plan`: which rule divides which tensor. Pure.
- `_divide`: every rank's part of every tensor. Pure.
- `_model_plan`: a model's own plan.
- `_fill`: the parts of one tensor, written while it passes once.
- `_by_executor`: the same by the workers of an executor.
- `_write`: the directories of all ranks, published as one.
- `_reshard`: `reshard_for_ranks`.
"""

from tensorkeep.tensor_parallel._reshard import RankDivision, reshard_for_ranks

__all__ = ["RankDivision", "reshard_for_ranks"]

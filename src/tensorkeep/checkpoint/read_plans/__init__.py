"""What each rank of a distributed job would read from a checkpoint: bytes and requests, before any is made.

- `_boxes`: a rank's share of every part of every tensor, as columns of numbers. Pure.
- `_ranks`: that share as reads of files.
"""

from tensorkeep.checkpoint.read_plans._boxes import StoredPart
from tensorkeep.checkpoint.read_plans._ranks import RankPlan, RankReads, parts_of, sharded_along

__all__ = [
    "RankPlan",
    "RankReads",
    "StoredPart",
    "parts_of",
    "sharded_along",
]

"""What each of many ranks would read.

- `_boxes`: what each of many ranks would read.
- `_ranks`: what each of many ranks would read.
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

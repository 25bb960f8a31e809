"""What reads would cost. Pure.

- `_read_plan`: the requests of one read.
- `_ranks`: what each of many ranks would read.
- `_memory`: what an array library would do with the memory of each tensor.
"""

from tensorkeep.cli.reports.plans._memory import memory_lines
from tensorkeep.cli.reports.plans._ranks import rank_lines, read_ranks
from tensorkeep.cli.reports.plans._read_plan import plan_lines

__all__ = ["memory_lines", "plan_lines", "rank_lines", "read_ranks"]

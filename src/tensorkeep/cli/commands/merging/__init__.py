"""Commands that compute models.

- `_merged`: what all that merge do.
- `_average`: `merge average`, `merge ema`, `merge slerp`.
- `_deltas`: `merge task-arithmetic`, `merge ties`, `merge dare`, `merge dare-ties`.
- `_lora`: `lora add`, `lora extract`.
"""

from tensorkeep.cli.commands.merging._average import average, ema, slerp
from tensorkeep.cli.commands.merging._deltas import dare, dare_ties, task_arithmetic, ties
from tensorkeep.cli.commands.merging._lora import add_lora, extract_lora

__all__ = [
    "add_lora",
    "average",
    "dare",
    "dare_ties",
    "ema",
    "extract_lora",
    "slerp",
    "task_arithmetic",
    "ties",
]

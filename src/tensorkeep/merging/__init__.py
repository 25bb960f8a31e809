"""Several models merged into one: averages of their weights, and sums of what training changed.

Numbers are computed when they are read or saved, in F32 (F64 if a model has it), and rounded once.

- `_computing`: tensors as numbers to compute with, and back; what is not a floating-point number must be equal.
- `_average`: `average`, `ema`.
- `_slerp`: `slerp`, along the arc between two models.
- `_deltas`: `task_arithmetic`, `ties`, `dare` and `dare_ties`, which merge differences to a base model.
- `_write`: `save_merged`.
- `lora/`: `add_lora` and `extract_lora`: an adapter and its base model.
"""

from tensorkeep.merging._average import average, ema
from tensorkeep.merging._deltas import dare, dare_ties, task_arithmetic, ties
from tensorkeep.merging._slerp import slerp
from tensorkeep.merging._write import save_merged
from tensorkeep.merging.lora import ExtractedLayer, ExtractedLora, add_lora, extract_lora

__all__ = [
    "ExtractedLayer",
    "ExtractedLora",
    "add_lora",
    "average",
    "dare",
    "dare_ties",
    "ema",
    "extract_lora",
    "save_merged",
    "slerp",
    "task_arithmetic",
    "ties",
]

"""How two checkpoints differ.

- `_numbers`: two tensors of the same shape, number by number.
- `_states`: two states, apart from the elements of tensors.
- `_html`: differences in notebooks. Pure.
- `_diff`: `diff`, two checkpoints.
"""

from tensorkeep.checkpoint.diffing._diff import Diff, TensorDiff, diff
from tensorkeep.checkpoint.diffing._numbers import have_equal_bytes
from tensorkeep.checkpoint.diffing._states import DataDiff

__all__ = [
    "DataDiff",
    "Diff",
    "TensorDiff",
    "diff",
    "have_equal_bytes",
]

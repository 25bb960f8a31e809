"""How two checkpoints differ.

- `_numbers`: two tensors of one shape, number by number.
- `_states`: what is different in two states besides the elements of tensors.
- `_diff`: what is different in two checkpoints.
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

"""How two checkpoints differ.

- `_changes`: two arrays of numbers, and how far one is from the other. Pure.
- `_numbers`: two tensors of the same shape, byte by byte and number by number.
- `_pairs`: the tensors that two checkpoints have under the same names.
- `_states`: two states, apart from the elements of tensors.
- `_html`: differences in notebooks. Pure.
- `_diff`: `diff`, two checkpoints.
"""

from tensorkeep.checkpoint.diffing._changes import change_between
from tensorkeep.checkpoint.diffing._diff import Diff, diff, diff_apart_from_tensors
from tensorkeep.checkpoint.diffing._numbers import compare_numbers, have_equal_bytes
from tensorkeep.checkpoint.diffing._pairs import Compared, TensorDiff, compare_tensors
from tensorkeep.checkpoint.diffing._states import DataDiff

__all__ = [
    "Compared",
    "DataDiff",
    "Diff",
    "TensorDiff",
    "change_between",
    "compare_numbers",
    "compare_tensors",
    "diff",
    "diff_apart_from_tensors",
    "have_equal_bytes",
]

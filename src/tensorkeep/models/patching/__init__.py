"""Patches applied to models in memory.

- `_words`: the memory of tensors, in blocks.
- `_rest`: whether a model is the checkpoint that patches are for, also in the tensors that they leave.
- `_apply_patch`: `apply_patch`.
"""

from tensorkeep.models.patching._apply_patch import apply_patch

__all__ = ["apply_patch"]

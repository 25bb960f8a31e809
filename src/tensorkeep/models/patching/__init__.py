"""Patches applied to models in memory.

- `_words`: the memory of tensors, in blocks.
- `_rest`: whether the tensors that patches leave are those of their checkpoint.
- `_apply_patch`: `apply_patch`.
"""

from tensorkeep.models.patching._apply_patch import apply_patch

__all__ = ["apply_patch"]

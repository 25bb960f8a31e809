"""Patches applied to models in memory.

- `_apply_patch`: `apply_patch`.
"""

from tensorkeep.models.patching._apply_patch import apply_patch

__all__ = ["apply_patch"]

"""Checkpoints that are kept as another one and patches: a step of a run that takes the bytes of what changed.

- `_checkpoint`: `PatchedCheckpoint`, the other one seen through the patches.
- `_kind`: the record of this kind.
"""

from tensorkeep.kinds.patched._checkpoint import PatchedCheckpoint, open_patched, read_document
from tensorkeep.kinds.patched._kind import PATCHED

__all__ = ["PATCHED", "PatchedCheckpoint", "open_patched", "read_document"]

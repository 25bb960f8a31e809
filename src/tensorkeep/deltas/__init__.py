"""Checkpoints seen through patches: what differs, stored as bytes, and tensors that are patched when they are read.

- `encoding/`: the differences of tensors as bytes.
- `reading/`: patches that are open, and what they and checkpoints hold.
- `_reader`: a tensor read through its differences from another.
- `_view`: a checkpoint seen through patches.
"""

from tensorkeep.deltas._reader import PatchedReader, through
from tensorkeep.deltas._view import patched, require_old, view

__all__ = ["PatchedReader", "patched", "require_old", "through", "view"]

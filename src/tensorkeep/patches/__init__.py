"""Patches: what turns one checkpoint into another, bit for bit, in a safetensors file.

- `encoding/`: the differences of tensors as bytes.
- `reading/`: patches that are open, and what they and checkpoints hold.
- `_summary`: writes a patch, and says what was written.
- `_make`: `make`, a patch from two checkpoints.
- `_reader`: a tensor read through its differences from another.
- `_view`: a checkpoint seen through patches.
- `_apply`: `apply` and `undo`, on disk.
- `_chain`: `chain`, several patches as one.
- `feed/`: a run as anchors and patches, published and followed.
"""

from tensorkeep.patches._apply import apply, undo
from tensorkeep.patches._chain import chain
from tensorkeep.patches._make import make
from tensorkeep.patches._summary import Summary
from tensorkeep.patches._view import view
from tensorkeep.patches.feed import Follower, Publisher, Update, follow

__all__ = ["Follower", "Publisher", "Summary", "Update", "apply", "chain", "follow", "make", "undo", "view"]

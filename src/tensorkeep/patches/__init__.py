"""Patches: what turns one checkpoint into another, bit for bit, in a safetensors file.

`tensorkeep.deltas` says what they hold, and reads tensors through them.

- `opening/`: opens what functions are given.
- `_spool`: differences that wait until it is known how many bytes they are.
- `_summary`: writes a patch, and says what was written.
- `_difference`: how the tensors of two checkpoints differ.
- `_make`: `make`, a patch from two checkpoints.
- `_apply`: `apply` and `undo`, on disk.
- `_chain`: `chain`, several patches as one.
- `steps/`: checkpoints that are kept as the files of another one and patches.
- `feed/`: a run as anchors and patches, published and followed.
"""

from tensorkeep.deltas import view
from tensorkeep.patches._apply import apply, undo
from tensorkeep.patches._chain import chain
from tensorkeep.patches._make import make
from tensorkeep.patches._summary import Summary
from tensorkeep.patches.feed import Follower, NoFeedWarning, Publisher, Update, follow

__all__ = [
    "Follower",
    "NoFeedWarning",
    "Publisher",
    "Summary",
    "Update",
    "apply",
    "chain",
    "follow",
    "make",
    "undo",
    "view",
]

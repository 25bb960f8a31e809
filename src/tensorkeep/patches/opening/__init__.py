"""Opening what functions are given.

- `_copy`: copies of served patches on this machine.
- `_open`: checkpoints and patches, by path or already open.
"""

from tensorkeep.patches.opening._copy import copy_to
from tensorkeep.patches.opening._open import Checkpoint, opened, opened_patches

__all__ = ["Checkpoint", "copy_to", "opened", "opened_patches"]

"""Opening what functions are given.

- `_copy`: copies of served patches on this machine.
- `_open`: checkpoints and patches, by path or already open.
"""

from tensorkeep.patches.opening._copy import copy_to
from tensorkeep.patches.opening._open import Checkpoint, Opening, encryption_of

__all__ = ["Checkpoint", "Opening", "copy_to", "encryption_of"]

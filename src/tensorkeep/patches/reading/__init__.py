"""Patches that are open, and what they and checkpoints hold.

- `_description`: what a patch says of itself. Pure.
- `_contents`: what the tensors of a checkpoint are.
- `_patch`: an open patch, in one direction.
- `_copy`: copies of served patches on this machine.
- `_open`: opens what functions are given.
"""

from tensorkeep.patches.reading._contents import N_THREADS, content_of, contents_of, state_of, texts_of
from tensorkeep.patches.reading._copy import copy_to
from tensorkeep.patches.reading._description import (
    PATCH_KEY,
    Change,
    Content,
    Description,
    End,
    Texts,
    digest_of_contents,
    emit_description,
)
from tensorkeep.patches.reading._open import Checkpoint, opened, opened_patches
from tensorkeep.patches.reading._patch import Patch

__all__ = [
    "N_THREADS",
    "PATCH_KEY",
    "Change",
    "Checkpoint",
    "Content",
    "Description",
    "End",
    "Patch",
    "Texts",
    "content_of",
    "contents_of",
    "copy_to",
    "digest_of_contents",
    "emit_description",
    "opened",
    "opened_patches",
    "state_of",
    "texts_of",
]

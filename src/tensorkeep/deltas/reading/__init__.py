"""Patches that are open, and what they and checkpoints hold.

- `_description`: what a patch says of itself. Pure.
- `_contents`: what the tensors of a checkpoint are.
- `_patch`: an open patch, in one direction.
"""

from tensorkeep.deltas.reading._contents import N_THREADS, content_of, contents_of, hash_bytes, state_of, texts_of
from tensorkeep.deltas.reading._description import (
    PATCH_KEY,
    Change,
    Content,
    Description,
    End,
    Texts,
    digest_of_contents,
    emit_description,
)
from tensorkeep.deltas.reading._patch import Patch

__all__ = [
    "N_THREADS",
    "PATCH_KEY",
    "Change",
    "Content",
    "Description",
    "End",
    "Patch",
    "Texts",
    "content_of",
    "contents_of",
    "digest_of_contents",
    "emit_description",
    "hash_bytes",
    "state_of",
    "texts_of",
]

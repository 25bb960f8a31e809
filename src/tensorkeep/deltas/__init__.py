"""Checkpoints seen through patches: what differs, stored as bytes, and tensors that are patched when they are read.

- `encoding/`: the differences of tensors as bytes.
- `reading/`: patches that are open, and what they and checkpoints hold.
- `_reader`: a tensor read through its differences from another.
- `_view`: a checkpoint seen through patches.
- `_document`: what a directory of a checkpoint and its patches says of itself. Pure.
"""

from tensorkeep.deltas._document import DOCUMENT_NAME, PatchedDocument, emit_document, parse_document
from tensorkeep.deltas._reader import PatchedReader, through
from tensorkeep.deltas._view import patched, view

__all__ = [
    "DOCUMENT_NAME",
    "PatchedDocument",
    "PatchedReader",
    "emit_document",
    "parse_document",
    "patched",
    "through",
    "view",
]

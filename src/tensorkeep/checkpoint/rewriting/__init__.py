"""Existing checkpoints, rewritten: resharded, merged, edited.

- `_pipeline`: what checkpoints go through before they are written again.
- `_named_texts`: metadata by the names of tensors, which follow them.
- `_existing`: another checkpoint at the destination is replaced only if the caller said so.
- `_whole`: a finished checkpoint, opened to be written again.
- `_rewrite`: checkpoints written as one.
- `_reshard`: `reshard` and `join`.
- `_in_place`: an existing checkpoint, held open for an edit.
- `_edit`: names and metadata, changed without a copy of the data.
- `_provenance`: what a rewritten checkpoint came from.
- `_add_sha256`: the SHA-256 of every shard, written into the index.
- `_add_block_digests`: the block digests, written beside every shard.
"""

from tensorkeep.checkpoint.rewriting._add_block_digests import add_block_digests
from tensorkeep.checkpoint.rewriting._add_sha256 import add_sha256
from tensorkeep.checkpoint.rewriting._edit import edit
from tensorkeep.checkpoint.rewriting._existing import destination_exists, loss_guard, refuse_existing
from tensorkeep.checkpoint.rewriting._pipeline import (
    RewriteOptions,
    check_replaced,
    concatenate,
    digests_to_replace,
    identities_of,
    refuse_replaced,
    select_and_drop,
    transform,
)
from tensorkeep.checkpoint.rewriting._provenance import provenance_of
from tensorkeep.checkpoint.rewriting._reshard import join, reshard
from tensorkeep.checkpoint.rewriting._rewrite import rewrite_as_one
from tensorkeep.checkpoint.rewriting._whole import whole_checkpoint
from tensorkeep.parallel import Progress

__all__ = [
    "Progress",
    "RewriteOptions",
    "add_block_digests",
    "add_sha256",
    "check_replaced",
    "concatenate",
    "destination_exists",
    "digests_to_replace",
    "edit",
    "identities_of",
    "join",
    "loss_guard",
    "provenance_of",
    "refuse_existing",
    "refuse_replaced",
    "reshard",
    "rewrite_as_one",
    "select_and_drop",
    "transform",
    "whole_checkpoint",
]

"""Existing checkpoints, rewritten: resharded, merged, edited.

- `_reshard`: finished checkpoints written anew, or several as one.
- `_pipeline`: finished checkpoints put together, chosen from, changed and checked.
- `_in_place`: a finished checkpoint, held open for a change.
- `_edit`: its names and metadata, changed without a copy of its data.
- `_add_sha256`: the SHA-256 of its shards, written into its index.
"""

from tensorkeep.checkpoint.rewriting._add_sha256 import add_sha256
from tensorkeep.checkpoint.rewriting._edit import edit
from tensorkeep.checkpoint.rewriting._pipeline import (
    Progress,
    changed,
    check_kept_digests,
    digested,
    identity_of,
    refuse_replaced,
    taken,
    together,
)
from tensorkeep.checkpoint.rewriting._reshard import merge, reshard

__all__ = [
    "Progress",
    "add_sha256",
    "changed",
    "check_kept_digests",
    "digested",
    "edit",
    "identity_of",
    "merge",
    "refuse_replaced",
    "reshard",
    "taken",
    "together",
]

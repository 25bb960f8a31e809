"""`tensorkeep add-block-digests`: let slices be checked without the rest."""

from __future__ import annotations

import tensorkeep
from tensorkeep.cli.inputs import AsJson, Rewritten
from tensorkeep.cli.terminal import json_lines, progress_bar, reporting_interrupt, show, show_text
from tensorkeep.texts import counted


def add_block_digests(path: Rewritten, *, as_json: AsJson = False) -> None:
    """Write digests of blocks beside the shards, so that slices are checked without the rest.

    Each shard gets a file with the digests of its blocks of 64 KiB, a 2,000th of its size, and the index gets their
    roots; no other file changes. All tensors are read, and compared with their own digests. Whenever this is stopped,
    the checkpoint is as it was or has all of them. Sign after it, not before: the index changes.
    """
    with reporting_interrupt(path), progress_bar("hashing") as progress:
        roots = tensorkeep.add_block_digests(path, progress=progress)
    if as_json:
        show_text(json_lines({"path": path, "roots": roots}))
    else:
        show([[(f"{counted(len(roots), 'shard')} with digests of blocks: ", ""), (path, "title")]])

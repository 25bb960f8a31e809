"""`tensorkeep add-block-digests`: let slices be checked without the rest."""

from __future__ import annotations

import tensorkeep
from tensorkeep.cli.inputs import AsJson, Rewritten
from tensorkeep.cli.terminal import json_lines, progress_bar, reporting_interrupt, show, show_text
from tensorkeep.texts import counted


def add_block_digests(path: Rewritten, *, as_json: AsJson = False) -> None:
    """Write block digests beside the shards, so that a slice can be checked without reading the rest.

    Each shard gets a file with the digests of its 64 KiB blocks, a 2,000th of the shard's size, and the index gets
    their roots; no other file changes. All tensors are read, and checked against their own digests. If this is
    stopped, the checkpoint either is as it was or has all block digests. Sign afterwards, since the index changes.
    """
    with reporting_interrupt(path), progress_bar("hashing") as progress:
        roots = tensorkeep.add_block_digests(path, progress=progress)
    if as_json:
        show_text(json_lines({"path": path, "roots": roots}))
    else:
        show([[(f"{counted(len(roots), 'shard')} with block digests: ", ""), (path, "title")]])

"""A program that saves with four ranks on disks that are too small, for `test_distributed_faults`.

`ranks_on_a_small_disk.py FOLDER`, in a mount namespace of its own: mounts file systems of ever more room over FOLDER,
and saves on each over an older save. Prints one line of JSON per failed save.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.integrations.distributed.failing_saves import contents, save_number, try_to_save, whole_number
from tests.support.integrations.distributed.gloo_ranks import Ranks

STEP_NBYTES = 100_000


def attempt(ranks: Ranks, folder: Path, nbytes: int) -> bool:
    """Save twice, and return whether there was room for the second."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={nbytes}", "tmpfs", folder], check=True)
    try:
        path = folder / "checkpoint"
        ranks.run(save_number, str(path), 1, {"max_shard_size": "60KB"})
        before = contents(path)
        results = ranks.run(try_to_save, str(path), -1, "", {})
        if all(not said for _, said in results):
            assert whole_number(path) == 2
            return True
        said = [text for _, texts in results for text in texts.values()]
        print(json.dumps({"as before": contents(path) == before, "said": said}))
        assert whole_number(path) == 1
        return False
    finally:
        subprocess.run(["umount", folder], check=True)


if __name__ == "__main__":
    with Ranks(4) as four:
        n_bytes = 380_000
        while not attempt(four, Path(sys.argv[1]), n_bytes):
            n_bytes += STEP_NBYTES

"""A program that saves checkpoints on disks that are too small, for `test_full_disk`.

`save_on_a_small_disk.py FOLDER RESERVES`, in a mount namespace of its own: mounts file systems of ever more room over
FOLDER and saves on each. Prints one line of JSON per failed save: how far it came, and whether all is as it was.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np

import tensorkeep
from tensorkeep.errors import TensorkeepError
from tensorkeep.transport.system import _platform

N_SHARDS = 4
SHARD_NBYTES = 80_000
PAGE_NBYTES = 4_096


def tensors(number: int) -> dict[str, np.ndarray]:
    return {f"w{n}": np.full(SHARD_NBYTES // 8, number, np.int64) for n in range(N_SHARDS)}


def save(directory: str, number: int) -> None:
    tensorkeep.save_checkpoint(tensors(number), directory, max_shard_size=SHARD_NBYTES)


def contents(directory: str) -> dict[str, bytes]:
    """Return the bytes of all files by name."""
    found: dict[str, bytes] = {}
    for entry in os.scandir(directory):
        if entry.is_file():
            with open(entry.path, "rb") as file:
                found[entry.name] = file.read()
        else:
            found[entry.name] = b"a directory"
    return found


def attempt(directory: str, n_pages: int) -> bool:
    """Save on a disk that has room for the old checkpoint and some more pages; say whether it was enough."""
    old_pages = N_SHARDS * (SHARD_NBYTES // PAGE_NBYTES + 2) + 1
    nbytes = (old_pages + n_pages) * PAGE_NBYTES
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={nbytes}", "tmpfs", directory], check=True)
    try:
        save(directory, 1)
        before = contents(directory)
        furthest = 0

        def progress(done: int, of: int) -> None:
            nonlocal furthest
            furthest = done

        try:
            tensorkeep.save_checkpoint(tensors(2), directory, max_shard_size=SHARD_NBYTES, progress=progress)
        except TensorkeepError as error:
            is_as_before = contents(directory) == before and tensorkeep.verify(directory).is_whole
            number = int(tensorkeep.load(directory)["w3"][0])
            print(
                json.dumps({
                    "errno": getattr(error, "errno", None),
                    "message": str(error),
                    "shards written": furthest // SHARD_NBYTES,
                    "as before": is_as_before,
                    "number": number,
                })
            )
            return False
        assert tensorkeep.verify(directory).is_whole
        assert (tensorkeep.load(directory)["w3"] == 2).all()
        assert contents(directory).keys() == before.keys()
        return True
    finally:
        subprocess.run(["umount", directory], check=True)


def main(directory: str, reserves: bool) -> None:
    """Try with ever more room until a save gets through."""
    _platform.HAS_FALLOCATE = reserves
    os.cpu_count = lambda: 1  # one shard after another, so that each is the one that fails
    n_pages = 0
    while not attempt(directory, n_pages):
        n_pages += 1 if n_pages % 21 > 18 else 3


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "True")

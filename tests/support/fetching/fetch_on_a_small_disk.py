"""A program that fetches to disks that are too small, for `test_fetch_interrupted`.

`fetch_on_a_small_disk.py FOLDER URL RESERVES`, in a mount namespace of its own: mounts file systems of ever more room
over FOLDER and fetches to each, over an older checkpoint. Prints one line of JSON per fetch that failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np

import tensorkeep
from tensorkeep.errors import TensorkeepError
from tensorkeep.transport.atomic import _sparse_file as _partial

PAGE_NBYTES = 4_096


def contents(directory: str) -> dict[str, bytes]:
    """Return the bytes of all files by name."""
    found: dict[str, bytes] = {}
    for entry in os.scandir(directory):
        if entry.is_file():
            with open(entry.path, "rb") as file:
                found[entry.name] = file.read()
    return found


def attempt(directory: str, url: str, n_pages: int) -> bool:
    """Fetch to a disk of so much room; say whether it was enough."""
    size = f"size={n_pages * PAGE_NBYTES}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", directory], check=True)
    try:
        tensorkeep.save({"old": np.arange(1000)}, f"{directory}/model.safetensors")
        before = contents(directory)
        try:
            tensorkeep.fetch(url, directory, overwrite=True)
        except TensorkeepError as error:
            is_as_before = contents(directory) == before and tensorkeep.verify(directory).is_whole
            subprocess.run(["mount", "-o", "remount,size=64m", directory], check=True)
            told: list[int] = []
            tensorkeep.fetch(url, directory, overwrite=True, progress=lambda done, total: told.append(done))
            assert tensorkeep.verify(directory).is_whole
            assert "old" not in tensorkeep.load(directory)
            report = {"errno": getattr(error, "errno", None), "as before": is_as_before, "goes on": told[0] > 0}
            print(json.dumps(report | {"message": str(error)}))
            return False
        assert tensorkeep.verify(directory).is_whole
        return True
    finally:
        subprocess.run(["umount", directory], check=True)


def main(directory: str, url: str, reserves: bool) -> None:
    """Try with ever more room until a fetch gets through."""
    _partial.preallocation_pays = lambda _: reserves
    n_pages = 12
    while not attempt(directory, url, n_pages):
        n_pages += 37


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3] == "True")

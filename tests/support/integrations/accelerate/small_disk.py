"""A program that saves runs on a disk that is too small, then read-only, then neither, for `test_accelerate_saving`.

`accelerate_on_a_small_disk.py FOLDER`, in a mount namespace of its own. Prints how each save ended.
"""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

from tensorkeep.errors import TransportError
from tests.support.integrations.accelerate.runs import everything, make_run, same, train

NBYTES = 24_576
"""What a saved state takes on the disk, roughly."""


def attempt(run: object, path: Path) -> str:
    """Save, and make sure that a save that fails leaves what can be loaded."""
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    try:
        run.accelerator.save_state(path)
    except TransportError as error:
        assert {file.name: file.read_bytes() for file in path.iterdir()} == before
        left = [file for file in path.parent.rglob("*") if file.is_file() and file.parent != path]
        assert not left, left
        return {errno.ENOSPC: "full", errno.EROFS: "read-only"}[error.errno]
    return "saved"


def mount(folder: str, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)


def main(folder: str) -> None:
    """Try with ever less room to spare."""
    path = Path(folder) / "state"
    run = make_run(0)
    mount(folder, f"size={10 * NBYTES}")
    run.accelerator.save_state(path)
    expected = everything(run)
    train(run, range(1))
    used = sum(-(-file.stat().st_size // 4096) * 4096 for file in path.iterdir())
    for n_pages in (0, 1, 2, 4, used // 4096 - 1):
        mount(folder, f"remount,size={used + 4096 * n_pages}")
        print(attempt(run, path), flush=True)
    mount(folder, f"remount,ro,size={10 * NBYTES}")
    print(attempt(run, path), flush=True)
    other = make_run(1)
    other.accelerator.load_state(path)
    assert same(everything(other), expected)
    mount(folder, f"remount,rw,size={10 * NBYTES}")
    print(attempt(run, path), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])

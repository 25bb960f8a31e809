"""A program that stops saves of whole directories and kills them, for `test_folder`.

`interrupted_folder.py FOLDER OLD SWAPS`: stops a save before every call that changes the file system, in turn, and in
the middle of every write, over an older directory (`1`) or none (`0`), where the system can swap two names (`1`) or
not (`0`). While it is stopped, and again after it was killed, the directory is read; then one more save must succeed
and leave nothing behind. Prints one line of JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
from collections import Counter
from pathlib import Path

import numpy as np

import tensorkeep
from tensorkeep.checkpoint import save_folder, verify_folder
from tensorkeep.transport import recover_directories
from tensorkeep.transport.system import _platform
from tests.support.checkpoint.interrupted_saver import kill, stopped

NAMES = {"mine.txt", "model.safetensors", "more", "tensorkeep.manifest.json"}


def save(folder: Path, number: int) -> None:
    with save_folder(folder / "run-5") as staging:
        tensorkeep.save({"w": np.full(1000, number)}, Path(staging, "model.safetensors"))
        Path(staging, "more").mkdir()
        descriptor = os.open(Path(staging, "more", "number"), os.O_CREAT | os.O_WRONLY)
        os.write(descriptor, f"{number:04d}".encode())
        os.close(descriptor)


def number_in(folder: Path) -> int | None:
    """Return which save the directory is of, all of it; None if there is none."""
    recover_directories(folder)
    directory = folder / "run-5"
    if not directory.exists():
        return None
    assert verify_folder(directory) == []
    number = int((directory / "more" / "number").read_text())
    assert (tensorkeep.load(directory / "model.safetensors")["w"] == number).all()
    return number


def main(folder: Path, *, has_old: bool) -> Counter[str]:
    template = folder / "template"
    template.mkdir(parents=True)
    if has_old:
        save(template, 1)
        (template / "run-5" / "mine.txt").write_text("not from a save")
    counts: Counter[str] = Counter()
    for at in itertools.count():
        for torn in (False, True):
            place = folder / f"{at}{'t' if torn else ''}"
            shutil.copytree(template, place)
            pid = stopped(lambda: save(place, 2), at, torn=torn)  # noqa: B023 - called at once
            if pid is None and torn:
                continue
            if pid is None:
                assert number_in(place) == 2
                return counts
            try:
                during = number_in(place)
            finally:
                kill(pid)
            after = number_in(place)
            allowed = {1 if has_old else None, 2}
            # Without a swap there is an instant in which nothing stands there, until somebody settles it.
            assert during in allowed | {None}, during
            assert after in allowed, after
            assert during != 2 or after == 2, "a reader saw the new directory, and then it was gone"
            counts["kills"] += 1
            counts["new" if after == 2 else "old"] += 1
            save(place, 3)
            assert number_in(place) == 3
            assert os.listdir(place) == ["run-5"], os.listdir(place)
            assert set(os.listdir(place / "run-5")) == NAMES - (set() if has_old else {"mine.txt"})
            shutil.rmtree(place)
    raise AssertionError


if __name__ == "__main__":
    _platform.HAS_EXCHANGE = sys.argv[3] == "1"
    print(json.dumps(main(Path(sys.argv[1]), has_old=sys.argv[2] == "1")))

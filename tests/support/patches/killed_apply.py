"""A program that kills `patches.apply` and `undo`, for `test_killed_apply`.

`killed_apply.py FOLDER FIRST STEP`: stops an apply before every STEP-th call that changes the file system, from the
FIRST, and in the middle of it if it writes; while it is stopped, and after it was killed, the directory is read.

`killed_apply.py FOLDER --at-random ROUNDS SEED`: kills a process that applies and undoes a patch again and again.

Prints one line of JSON: how often the checkpoint was the old one and the new one.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import tensorkeep
from tensorkeep import patches
from tests.support.checkpoint.interrupted_saver import kill, stopped
from tests.support.patches.models import contents, save


def made(folder: Path) -> Path:
    """Make both checkpoints and the patch between them."""
    save(folder / "old", 1)
    save(folder / "new", 2)
    patches.make(folder / "old", folder / "new", folder / "patch.safetensors", reversible=True)
    return folder / "patch.safetensors"


def side(folder: Path, model: Path) -> str:
    """Say whether a reader finds the old checkpoint or the new one, whole."""
    verification = tensorkeep.verify(model)
    assert verification.is_whole, verification.findings
    with tensorkeep.open(model) as opened:
        found = "new" if opened.metadata["steps"] == "2" else "old"
        with tensorkeep.open(folder / found) as expected:
            assert tensorkeep.diff(expected, opened).is_equal
    return found


def at_calls(folder: Path, first: int, step: int) -> dict[str, int]:
    patch, counts = made(folder), Counter[str]()
    for at, torn in ((at, torn) for at in itertools.count(first, step) for torn in (False, True)):
        model = folder / f"{at}{'t' if torn else ''}"
        shutil.copytree(folder / "old", model)
        pid = stopped(lambda: patches.apply(model, patch), at, torn=torn)  # noqa: B023 - called at once
        if pid is None and torn:
            continue
        if pid is None:
            assert contents(model) == contents(folder / "new")
            return dict(counts)
        try:
            during = side(folder, model)
        finally:
            kill(pid)
        after = side(folder, model)
        assert (during, after) != ("new", "old"), "a reader saw the new checkpoint, and then it was gone"
        counts["kills"] += 1
        counts[after] += 1
        (patches.apply if after == "old" else patches.undo)(model, patch)
        assert contents(model) == contents(folder / ("new" if after == "old" else "old")), "something is left over"
        shutil.rmtree(model)
    raise AssertionError


def at_random(folder: Path, n_kills: int, seed: int) -> dict[str, int]:
    patch, chance, counts = made(folder), random.Random(seed), Counter[str]()
    model = Path(shutil.copytree(folder / "old", folder / "model"))
    began = time.monotonic()
    patches.apply(model, patch, durable=False)
    patches.undo(model, patch, durable=False)
    longest_s = 2 * (time.monotonic() - began)  # on a busy machine, later kills
    for _ in range(n_kills):
        now = side(folder, model)
        pid = os.fork()
        if not pid:
            while True:
                (patches.apply if now == "old" else patches.undo)(model, patch, durable=False)
                now = "new" if now == "old" else "old"
        time.sleep(chance.uniform(0, longest_s))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        counts[side(folder, model)] += 1
        counts["kills"] += 1
    patches.apply(model, patch) if side(folder, model) == "old" else patches.undo(model, patch)
    assert contents(model) == contents(folder / side(folder, model)), "something is left over"
    return dict(counts)


if __name__ == "__main__":
    place, way, *numbers = sys.argv[1:]
    random_times = way == "--at-random"
    way_of = at_random if random_times else at_calls
    kills = way_of(Path(place), *map(int, numbers if random_times else (way, *numbers)))
    print(json.dumps(kills))

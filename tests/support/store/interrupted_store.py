"""A program that stops saves into a store and kills them, or lets them go on, for `test_killed_store_saves`.

`interrupted_store.py FOLDER killed STEP`: stops a save, which also removes an old step, before every STEP-th call
that changes the file system, and in the middle of it if it writes. While it is stopped, and again after it was
killed, the store is read; then one more save must succeed and leave nothing behind.

`interrupted_store.py FOLDER resumed STEP`: the same, but while it is stopped another step is saved, and it continues.

`interrupted_store.py FOLDER at-random ROUNDS SEED`: kills a process that saves step after step, at random times.

With `--deltas N` at the end, up to N steps after a whole one are patches. Prints one line of JSON.
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
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.checkpoint import interrupted_saver
from tests.support.checkpoint.interrupted_saver import COMPLETED, kill, stopped
from tests.support.store.run_states import names, state, step_of, store

interrupted_saver.CALLS = (*interrupted_saver.CALLS, "link")
DELTAS = int(sys.argv[sys.argv.index("--deltas") + 1]) if "--deltas" in sys.argv else 0
FILES = {"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors"}


def save(root: Path, step: int, **options: Any) -> None:
    """Save a step with its loss, which gets worse."""
    store(root, keep_best=0, **{"keep_last": 2, "deltas": DELTAS, **options}).save(
        step, state(step), {"valid_loss": step}
    )


def whole(root: Path) -> list[int]:
    """Load and verify every step that there seems to be, as the store and as anybody opens it."""
    found = store(root)
    steps = found.steps()
    for step in steps:
        assert step_of(found.load(step)) == step
        assert found.metrics_of(step) == {"valid_loss": step}
    latest = found.latest()
    assert latest == (steps[-1] if steps else None)
    assert latest is None or step_of(found.load()) == latest
    return steps


def is_tidy(root: Path, steps: list[int]) -> None:
    """Make sure that nothing is left over."""
    assert names(root) == [f"step-{step:08d}" for step in steps], names(root)
    for step in steps:
        left = set(names(root / f"step-{step:08d}"))
        if "patched.json" in left:
            assert {name for name in left if not name.endswith(".patch.safetensors")} == {"patched.json", "base"}, (
                left
            )
            left = set(names(root / f"step-{step:08d}" / "base"))
        assert left == FILES | {"model.safetensors.index.json"}, left


def killed_at_calls(folder: Path, step: int) -> dict[str, Any]:
    """Stop and kill a save before every `step`-th call, and in the middle of it."""
    template = folder / "template"
    for number in (1, 2):
        save(template, number)
    counts: Counter[str] = Counter()
    for at in itertools.count(0, step):
        for torn in (False, True):
            root = folder / f"{at}{'t' if torn else ''}"
            shutil.copytree(template, root)
            pid = stopped(lambda: save(root, 3), at, torn=torn)  # noqa: B023 - called at once
            if pid is None and torn:
                shutil.rmtree(root)
                continue
            if pid is None:
                assert whole(root) == [2, 3]
                is_tidy(root, [2, 3])
                return dict(counts)
            try:
                during = whole(root)
                assert during in ([1, 2], [1, 2, 3], [2, 3]), f"while stopped: {during}"
            finally:
                kill(pid)
            after = whole(root)
            assert after in ([1, 2], [1, 2, 3], [2, 3]), f"after the kill: {after}"
            assert set(during) - {1} <= set(after), "a step was there, and then it was gone"
            counts["leftovers"] += names(root) != [f"step-{step:08d}" for step in after]
            save(root, 4)
            assert whole(root) == [after[-1], 4]
            is_tidy(root, [after[-1], 4])
            counts["kills"] += 1
            counts["new" if 3 in after else "old"] += 1
            shutil.rmtree(root)
    raise AssertionError


def resumed_at_calls(folder: Path, step: int) -> dict[str, Any]:
    """Stop a save before every `step`-th call, save another step, and let it go on."""
    counts: Counter[str] = Counter()
    for at in itertools.count(0, step):
        root = folder / str(at)
        for number in (1, 2):
            save(root, number)
        pid = stopped(lambda: save(root, 3, keep_last=3), at, torn=False)  # noqa: B023 - called at once
        if pid is None:
            return dict(counts)
        try:
            save(root, 4, keep_last=3)
            during = whole(root)
        finally:
            os.kill(pid, signal.SIGCONT)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == COMPLETED, f"call {at}: {status}"
        assert set(during) & {2, 3, 4} <= set(whole(root))
        assert whole(root) == [2, 3, 4]
        is_tidy(root, [2, 3, 4])
        counts["resumed"] += 1
        shutil.rmtree(root)
    raise AssertionError


def killed_at_random(root: Path, n_rounds: int, seed: int) -> dict[str, Any]:
    """Kill a process that saves step after step, at random times."""
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    save(root, 0)
    before = 0
    for _ in range(n_rounds):
        pid = os.fork()
        if not pid:
            for step in itertools.count(before + 1):
                save(root, step)
        time.sleep(rng.random() * 0.15)
        kill(pid)
        steps = whole(root)
        assert steps, "all steps are gone"
        assert steps[-1] >= before, f"{steps[-1]} after {before}"
        counts["kills"] += 1
        counts["new" if steps[-1] > before else "old"] += 1
        counts["leftovers"] += names(root) != [f"step-{step:08d}" for step in steps]
        before = steps[-1]
        if rng.random() < 0.3:
            save(root, before + 1)
            is_tidy(root, [before, before + 1])
            before += 1
    return dict(counts)


if __name__ == "__main__":
    warnings.simplefilter("error")
    place = Path(sys.argv[1])
    if sys.argv[2] == "at-random":
        result = killed_at_random(place / "run", int(sys.argv[3]), int(sys.argv[4]))
    else:
        result = {"killed": killed_at_calls, "resumed": resumed_at_calls}[sys.argv[2]](place, int(sys.argv[3]))
    print(json.dumps(result))

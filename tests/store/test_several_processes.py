"""Several processes with one store: nobody sees a mixture, or misses a step that nobody removed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import tensorkeep
from tests.support import SUPPORT
from tests.support.store.run_states import names, state, step_of, store

PROGRAM = SUPPORT / "store" / "use_store.py"


def start(root: Path, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROGRAM), str(root), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads(out)


def test_two_save_and_two_read(tmp_path: Path) -> None:
    store(tmp_path, keep_last=2).save(0, state(0), {"valid_loss": 0})

    savers = [start(tmp_path, "save", first, 60, 2) for first in (1, 2)]
    readers = [start(tmp_path, "read", 4) for _ in range(2)]

    assert [end(process)["saved"] for process in savers] == [30, 29]
    counts = [end(process) for process in readers]
    assert min(count["loads"] for count in counts) >= 5
    assert max(count["different"] for count in counts) >= 2
    kept = store(tmp_path)
    assert kept.steps()[0] == 0, "the best"
    assert kept.latest() in {58, 59}, "the last one of either"
    assert [step_of(kept.load(step)) for step in kept.steps()] == kept.steps()
    assert all(tensorkeep.verify(kept.path_of(step)).is_whole for step in kept.steps())
    kept.save(60, state(60))
    assert all(name.startswith("step-") for name in names(tmp_path))


def test_two_save_the_same_steps(tmp_path: Path) -> None:
    processes = [start(tmp_path, "save", 0, 20, 1) for _ in range(2)]

    for process in processes:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0 or "BusyError" in err, err

    kept = store(tmp_path)
    assert kept.steps()[-1] == 19
    assert [step_of(kept.load(step)) for step in kept.steps()] == kept.steps()

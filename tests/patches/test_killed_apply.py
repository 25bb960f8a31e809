"""Patches whose application is killed: the old checkpoint or the new one, whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import SUPPORT
from tests.support.soak import SEED, rounds

KILLER = SUPPORT / "patches" / "killed_apply.py"
N_KILLS = rounds(15, 400)
STEP = rounds(9, 1)


def run(*arguments: object) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(KILLER), *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.soak
def test_killed_at_any_call_the_old_or_the_new_checkpoint_is_there(tmp_path: Path) -> None:
    counts = run(tmp_path, STEP // 2, STEP)

    assert counts["kills"] >= 30 // STEP, "too few calls were seen to say anything"
    assert counts["old"] >= 15 // STEP
    assert STEP > 1 or counts["new"] >= 2


@pytest.mark.soak
def test_killed_at_any_time_the_old_or_the_new_checkpoint_is_there(tmp_path: Path) -> None:
    counts = run(tmp_path, "--at-random", N_KILLS, SEED)

    assert counts["kills"] == N_KILLS
    assert min(counts["old"], counts["new"]) >= N_KILLS // 10

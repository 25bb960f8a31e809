"""Saves of checkpoints that are stopped and killed at every step: the old checkpoint or the new one, whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import SUPPORT
from tests.support.checkpoint.numbered_saves import SCENARIOS
from tests.support.soak import SEED, rounds

SAVER = SUPPORT / "checkpoint" / "interrupted_saver.py"
N_KILLS = rounds(30, 5000)
STEP = rounds(6, 1)
"""Every how many calls a save is killed: other ones in each scenario."""


def run(*arguments: object) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(SAVER), *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.soak
def test_killed_at_any_call_the_old_or_the_new_checkpoint_is_there(tmp_path: Path, scenario: str) -> None:
    first = list(SCENARIOS).index(scenario) % STEP
    counts = run(tmp_path, scenario, first, STEP)

    assert counts["kills"] >= 15 // STEP, "too few calls were seen to say anything"
    assert counts["old"] >= 15 // STEP
    assert STEP > 1 or counts["new"] >= 2


@pytest.mark.soak
def test_killed_at_any_time_the_old_or_the_new_checkpoint_is_there(tmp_path: Path) -> None:
    counts = run(tmp_path, "--at-random", N_KILLS, SEED)

    assert counts["kills"] == N_KILLS
    assert counts["leftovers"] >= N_KILLS // 10, "the kills came too early or too late to say anything"

"""Saves of checkpoints that are stopped and killed at every step: the old checkpoint or the new one, whole.

`TENSORKEEP_KILLS=5000` kills that many saves at random times; the test suite has 200.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import SUPPORT
from tests.support.checkpoint.numbered_saves import SCENARIOS

SAVER = SUPPORT / "checkpoint" / "interrupted_saver.py"
N_KILLS = int(os.environ.get("TENSORKEEP_KILLS", "200"))


def run(*arguments: object) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(SAVER), *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_at_any_call_the_old_or_the_new_checkpoint_is_there(tmp_path: Path, scenario: str) -> None:
    counts = run(tmp_path, scenario)

    assert counts["kills"] >= 15, "too few calls were seen to say anything"
    assert counts["old"] >= 15
    assert counts["new"] >= 2


def test_killed_at_any_time_the_old_or_the_new_checkpoint_is_there(tmp_path: Path) -> None:
    counts = run(tmp_path, "--at-random", N_KILLS, 1)

    assert counts["kills"] == N_KILLS
    assert counts["leftovers"] >= N_KILLS // 10, "the kills came too early or too late to say anything"

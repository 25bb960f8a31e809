"""Killed again and again at any instant, a run has its last whole state, and goes on from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import SUPPORT, forks
from tests.support.soak import SEED, rounds

HERE = SUPPORT / "integrations" / "accelerate"
N_KILLS = rounds(12, 1000)


@pytest.mark.soak
@pytest.mark.parametrize("naming", ["one", "numbered"])
def test_no_kill_takes_a_state_away(tmp_path: Path, naming: str) -> None:
    done = forks.run(HERE / "killed.py", tmp_path, naming, N_KILLS, SEED, modules=forks.ACCELERATE)

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["n_killed"] == N_KILLS
    assert report["n_interrupted"] >= N_KILLS // 5, "too few kills met a save"
    assert report["progress"][-1] > N_KILLS // 5
    left = [name for name in report["left"] if "tensorkeep-" in name and "tensorkeep-removed" not in name]
    assert left == []

"""Killed at any time, training leaves the whole files of one epoch, and goes on from there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import SUPPORT, forks
from tests.support.soak import SEED, rounds

PROGRAM = SUPPORT / "integrations" / "skorch" / "killed.py"
N_KILLS = rounds(8, 1000)


@pytest.mark.soak
@pytest.mark.parametrize("form", ["set", "file"])
def test_all_parts_are_of_one_epoch_after_every_kill(tmp_path: Path, form: str) -> None:
    done = forks.run(PROGRAM, tmp_path, N_KILLS, form, SEED, modules=forks.SKORCH)

    assert not done.returncode, done.stderr
    report = json.loads(done.stdout)
    assert report["n_killed"] == len(report["progress"]) == N_KILLS
    assert report["n_interrupted"] > N_KILLS // 5, "kills hardly met a save"
    assert report["progress"][-1] > report["progress"][0]

"""Killed at any time, training leaves the whole files of one epoch, and goes on from there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import SUPPORT

PROGRAM = SUPPORT / "integrations" / "skorch" / "killed.py"


@pytest.mark.parametrize(("form", "times"), [("set", 30), ("file", 20)])
def test_all_parts_are_of_one_epoch_after_every_kill(tmp_path: Path, form: str, times: int) -> None:
    command = [sys.executable, "-W", "ignore", PROGRAM, tmp_path, str(times), form]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert not done.returncode, done.stderr
    report = json.loads(done.stdout)
    assert report["n_killed"] == len(report["progress"]) == times
    assert report["n_interrupted"] > times // 5, "kills hardly met a save"
    assert report["progress"][-1] > report["progress"][0]

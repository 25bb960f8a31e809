"""The example goes on where it was stopped, and ends as if it had not been."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import tensorkeep
from tests.support import ROOT

EXAMPLE = ROOT / "examples" / "accelerate_digits.py"


def begin(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, EXAMPLE, folder, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_stop_changes_nothing(tmp_path: Path) -> None:
    whole, stopped = begin(tmp_path / "whole"), begin(tmp_path / "stopped", "--stop-after", "134")
    printed, problems = whole.communicate()
    assert whole.returncode == 0, problems
    stopped.communicate()
    assert stopped.returncode == 1
    assert sorted(os.listdir(tmp_path / "stopped" / "checkpoints")) == ["checkpoint_4", "checkpoint_5"]

    went_on = begin(tmp_path / "stopped")
    rest, problems = went_on.communicate()

    assert went_on.returncode == 0, problems
    assert printed.splitlines()[2:] == rest.splitlines()
    one, other = (tensorkeep.open(tmp_path / name / "model") for name in ("whole", "stopped"))
    assert tensorkeep.diff(one, other).is_equal

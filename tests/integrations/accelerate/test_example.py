"""The example goes on where it was stopped, and ends as if it had not been."""

from __future__ import annotations

import os
from pathlib import Path

import tensorkeep
from tests.support import ROOT, forks

EXAMPLE = ROOT / "examples" / "accelerate_digits.py"


def test_a_stop_changes_nothing(tmp_path: Path) -> None:
    whole = forks.run(EXAMPLE, tmp_path / "whole", modules=forks.ACCELERATE)
    assert whole.returncode == 0, whole.stderr
    stopped = forks.run(EXAMPLE, tmp_path / "stopped", "--stop-after", 134, modules=forks.ACCELERATE)
    assert stopped.returncode == 1
    assert sorted(os.listdir(tmp_path / "stopped" / "checkpoints")) == ["checkpoint_4", "checkpoint_5"]

    rest = forks.run(EXAMPLE, tmp_path / "stopped", modules=forks.ACCELERATE)

    assert rest.returncode == 0, rest.stderr
    assert whole.stdout.splitlines()[2:] == rest.stdout.splitlines()
    one, other = (tensorkeep.open(tmp_path / name / "model") for name in ("whole", "stopped"))
    assert tensorkeep.diff(one, other).is_equal

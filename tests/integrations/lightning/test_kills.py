"""A run that is killed at any instant has its newest checkpoint, whole, and goes on from it as if nothing had been.

`TENSORKEEP_KILLS=5000` kills that many runs; the test suite has 50.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import SUPPORT

HERE = SUPPORT / "integrations" / "lightning"
N_KILLS = int(os.environ.get("TENSORKEEP_KILLS", "50"))


@pytest.mark.parametrize(("plugin", "share"), [("TensorkeepCheckpointIO", 0.6), ("AsyncTensorkeepCheckpointIO", 0.4)])
def test_no_kill_costs_a_checkpoint(tmp_path: Path, plugin: str, share: float) -> None:
    n_kills = round(share * N_KILLS)
    done = subprocess.run(
        [sys.executable, HERE / "killed.py", tmp_path, plugin, str(n_kills)], capture_output=True, text=True
    )

    assert not done.returncode, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert len(report["progress"]) == n_kills
    assert report["n_killed"] == n_kills
    assert report["n_interrupted"] or len(report["left"]) > 2, "no kill hit a save"
    assert report["progress"][-1] > report["progress"][0]
    assert "last.ckpt" in report["left"]
    assert report["is_same"], "the last run did not end as one that was never killed"

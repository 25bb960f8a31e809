"""A run that is killed at any instant keeps its newest checkpoint whole, and continues as if never stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import SUPPORT, forks
from tests.support.soak import SEED, rounds

HERE = SUPPORT / "integrations" / "lightning"
N_KILLS = rounds(10, 2500)


@pytest.mark.soak
@pytest.mark.parametrize("plugin", ["TensorkeepCheckpointIO", "AsyncTensorkeepCheckpointIO"])
def test_no_kill_costs_a_checkpoint(tmp_path: Path, plugin: str) -> None:
    done = forks.run(HERE / "killed.py", tmp_path, plugin, N_KILLS, SEED, modules=forks.LIGHTNING)

    assert not done.returncode, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert len(report["progress"]) == N_KILLS
    assert report["n_killed"] == N_KILLS
    assert report["n_interrupted"] or len(report["left"]) > 2, "no kill hit a save"
    assert report["progress"][-1] > report["progress"][0]
    assert "last.ckpt" in report["left"]
    assert report["is_same"], "the last run did not end as one that was never killed"

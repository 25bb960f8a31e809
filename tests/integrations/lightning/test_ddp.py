"""Two processes: one of them saves, both load, and each has its own random numbers again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support import SUPPORT, forks

HERE = SUPPORT / "integrations" / "lightning"


@pytest.mark.parametrize("plugin", ["AsyncTensorkeepCheckpointIO"])
def test_two_processes_are_resumed(tmp_path: Path, plugin: str) -> None:
    program, env = HERE / "two_processes.py", os.environ | {"GLOO_SOCKET_IFNAME": "lo"}
    for done in forks.run_ranks(2, program, tmp_path, plugin, modules=forks.LIGHTNING, env=env):
        assert not done.returncode, done.stderr

    first, second = (json.loads((tmp_path / f"rank {rank}.json").read_text()) for rank in range(2))
    for report in (first, second):
        assert report["same weights"]
        assert report["same losses"]
        assert report["tested"]
    assert first["losses"] != second["losses"], "each has its own part of the data"
    assert first["files"] == ["epoch=2-step=9.ckpt", "last.ckpt"]
    assert first["whole"]

"""Where the system allows no more threads, the caller does the work itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tensorkeep
from tensorkeep.server import Server
from tests.support.server.weights import WEIGHTS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Limits of threads are those of Linux.")


def test_everything_works_in_one_thread(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(WEIGHTS, tmp_path / "served", max_shard_size="200KB")
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents[:-2]:
        parent.chmod(0o755)
    with Server(tmp_path / "served", port=0) as server:
        command = [sys.executable, "-m", "tests.support.checkpoint.without_threads", str(tmp_path), server.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)

    assert done.stdout == "done\n", done.stderr
    assert tensorkeep.verify(tmp_path / "fetched").is_whole

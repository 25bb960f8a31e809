"""Writers, merges and the like that are killed: the old checkpoint or the new one, whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import SUPPORT
from tests.support.soak import SEED, rounds

N_KILLS = rounds(6, 200)


@pytest.mark.soak
@pytest.mark.parametrize("way", ["planned", "as they come", "encrypted", "merge", "extract", "divide", "transform"])
def test_killed_at_any_time_the_old_or_the_new_one_is_there(way: str, tmp_path: Path) -> None:
    killer = [sys.executable, str(SUPPORT / "checkpoint" / "killed_writers.py"), str(tmp_path), way]
    done = subprocess.run(
        [*killer, str(N_KILLS), str(SEED)], capture_output=True, text=True, check=False, timeout=3600
    )

    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert counts["kills"] == N_KILLS
    assert counts["leftovers"] >= N_KILLS // 10, "the kills came too early or too late to say anything"
    assert counts["last"] >= N_KILLS // 10, "no save was ever complete"

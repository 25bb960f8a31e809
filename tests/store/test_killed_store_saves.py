"""Saves into a store that are stopped and killed at every step: old steps stay whole, the new one is whole or absent.

`TENSORKEEP_KILLS=5000` kills that many saves at random times; the test suite has 60.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support import SUPPORT

PROGRAM = SUPPORT / "store" / "interrupted_store.py"
N_KILLS = int(os.environ.get("TENSORKEEP_KILLS", "60"))


def run(*arguments: object) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_killed_at_any_call_all_steps_are_whole(tmp_path: Path) -> None:
    counts = run(tmp_path, "killed")

    assert counts["kills"] >= 40, "too few calls were seen to say anything"
    assert counts["old"] >= 15
    assert counts["new"] >= 10
    assert counts["leftovers"] >= 20


def test_stopped_at_any_call_another_process_saves_and_both_steps_are_whole(tmp_path: Path) -> None:
    counts = run(tmp_path, "resumed")

    assert counts["resumed"] >= 20, "too few calls were seen to say anything"


def test_killed_at_any_time_all_steps_are_whole(tmp_path: Path) -> None:
    counts = run(tmp_path, "at-random", N_KILLS, 1)

    assert counts["kills"] == N_KILLS
    assert counts["leftovers"] >= N_KILLS // 10, "the kills came too early or too late to say anything"

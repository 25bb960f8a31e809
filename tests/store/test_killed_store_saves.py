"""Saves into a store that are stopped and killed: old steps stay whole, the new one is whole or absent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import SUPPORT
from tests.support.soak import SEED, rounds

PROGRAM = SUPPORT / "store" / "interrupted_store.py"
N_KILLS = rounds(15, 5000)
STEPS = {0: rounds(3, 1), 2: rounds(8, 1)}
"""Before every how many calls a save is stopped, by the number of deltas."""


def run(*arguments: object) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


KINDS = pytest.mark.parametrize("deltas", [0, 2], ids=["whole", "deltas"])


@pytest.mark.soak
@KINDS
def test_killed_at_any_call_all_steps_are_whole(tmp_path: Path, deltas: int) -> None:
    counts = run(tmp_path, "killed", STEPS[deltas], "--deltas", deltas)

    assert counts["kills"] >= 40 // STEPS[deltas], "too few calls were seen to say anything"
    assert counts["old"] >= 15 // STEPS[deltas]
    assert counts["new"] >= 10 // STEPS[deltas]
    assert counts["leftovers"] >= 20 // STEPS[deltas]


@pytest.mark.soak
@KINDS
def test_stopped_at_any_call_another_process_saves_and_both_steps_are_whole(tmp_path: Path, deltas: int) -> None:
    counts = run(tmp_path, "resumed", STEPS[deltas], "--deltas", deltas)

    assert counts["resumed"] >= 20 // STEPS[deltas], "too few calls were seen to say anything"


@pytest.mark.soak
@KINDS
def test_killed_at_any_time_all_steps_are_whole(tmp_path: Path, deltas: int) -> None:
    counts = run(tmp_path, "at-random", N_KILLS, SEED, "--deltas", deltas)

    assert counts["kills"] == N_KILLS
    assert counts["leftovers"] >= N_KILLS // 10, "the kills came too early or too late to say anything"

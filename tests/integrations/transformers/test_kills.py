"""Saves that are killed, or find no room, in processes of their own."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support import SUPPORT, forks
from tests.support.soak import SEED, rounds

HERE = SUPPORT / "integrations" / "transformers"
N_KILLS = rounds(10, 1000)


def run(program: str, *arguments: Any, own_mounts: bool = False) -> str:
    done = forks.run(HERE / program, *arguments, modules=forks.TRANSFORMERS, own_mounts=own_mounts)
    assert done.returncode == 0, done.stderr
    return done.stdout


def report(printed: str) -> list[int]:
    return [int(number) for number in printed.splitlines()[-1].split()]


@pytest.mark.soak
def test_training_killed_at_random_loses_nothing(tmp_path: Path) -> None:
    n_killed, n_ended, n_interrupted, last = report(run("kill_trainer.py", tmp_path / "run", N_KILLS, SEED))

    assert n_killed + n_ended == N_KILLS
    assert n_interrupted >= N_KILLS // 5, "too few kills met a save"
    assert last > N_KILLS // 12 or n_interrupted > 0.8 * N_KILLS, (
        "neither did runs come far, nor were they killed in saves"
    )


@pytest.mark.soak
def test_a_model_killed_in_a_save_is_the_old_or_the_new(tmp_path: Path) -> None:
    """Where transformers alone leaves shards of both, and loads them without a word."""
    n_killed, _, n_interrupted, last = report(run("kill_save_pretrained.py", tmp_path / "m", N_KILLS, SEED))

    assert n_killed == N_KILLS
    assert n_interrupted >= N_KILLS // 5, "too few kills met a save"
    assert last > 2 or n_interrupted == n_killed, "neither were saves finished, nor killed"


def test_a_full_disk_at_any_place_leaves_every_byte(tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("no unshare(1) to mount a small disk with")
    within = ["unshare", "--mount", "--map-root-user"]
    probe = [*within, "mount", "-t", "tmpfs", "tmpfs", tmp_path]
    if (found := subprocess.run(probe, capture_output=True, check=False)).returncode:
        pytest.skip(f"no rights to mount a small disk: {found.stderr!r}")

    printed = run("small_disk.py", tmp_path, own_mounts=True)

    failures = [json.loads(line) for line in printed.splitlines() if line.startswith('{"what"')]
    assert all(failure["errno"] == errno.ENOSPC and failure["as before"] for failure in failures), failures
    assert all("No space left" in failure["said"] for failure in failures)
    for what, place in (
        ("model", "model-00001"),
        ("model", "model-0000"),
        ("checkpoint", "optimizer"),
        ("checkpoint", "model.s"),
    ):
        assert any(failure["what"] == what and place in failure["said"] for failure in failures), (
            what,
            place,
            failures,
        )


def test_two_processes_go_on_as_one_run(tmp_path: Path) -> None:
    runs = forks.run_ranks(2, HERE / "two_trainers.py", tmp_path, modules=forks.TRANSFORMERS)
    for rank, done in enumerate(runs):
        assert done.returncode == 0, done.stderr
        assert f"done {rank}" in done.stdout.splitlines()

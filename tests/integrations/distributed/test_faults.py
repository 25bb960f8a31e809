"""What is left when a rank fails: the old checkpoint, whole; and what the others say."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint import DefaultSavePlanner

from tensorkeep.checkpoint import FillAssignment, PartToWrite, Place, write_parts
from tensorkeep.errors import SourceMissingError
from tensorkeep.integrations.distributed._tensor_parts import RankParts
from tensorkeep.transport import Reserved, transaction
from tests.support import SUPPORT, forks
from tests.support.integrations.distributed.failing_saves import (
    ANY,
    contents,
    save_apart,
    save_number,
    save_when_ready,
    try_to_save,
    whole_number,
)
from tests.support.integrations.distributed.gloo_ranks import Killed, Ranks
from tests.support.soak import SEED, rounds

HERE = SUPPORT / "integrations" / "distributed"
SAVE_S = 0.1
"""Seconds that a save takes about."""

N_KILLS = rounds(3, 50)


@pytest.fixture
def old(ranks: Ranks, tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint"
    ranks.run(save_number, str(path), 1, {"max_shard_size": "60KB"})
    return path


@pytest.mark.parametrize(("failing", "step"), [(0, "plan"), (3, "plan"), (ANY, "values"), (0, "write"), (3, "write")])
def test_what_one_rank_raises_all_raise_at_once(ranks: Ranks, old: Path, failing: int, step: str) -> None:
    before = contents(old)

    for seconds, said in ranks.run(try_to_save, str(old), failing, step, {}):
        assert seconds < 5
        assert all(f"RuntimeError: failed in {step}" in text for text in said.values()), said
        if step != "plan":
            assert sorted(said) == [0, 1, 2, 3]
            assert sum(text.startswith("RuntimeError") for text in said.values()) == 1
            assert sum(text.startswith("TensorkeepError: rank ") for text in said.values()) == 3
    assert contents(old) == before

    ranks.run(save_number, str(old), 3, {"max_shard_size": "60KB"})
    assert whole_number(old) == 3


def test_ranks_with_other_paths_are_refused(ranks: Ranks, tmp_path: Path) -> None:
    for said in ranks.run(save_apart, str(tmp_path / "checkpoint"), True):
        assert "was given another path than the first rank" in said
        assert str(tmp_path / "checkpoint-0") in said
    assert list(tmp_path.iterdir()) == []

    assert ranks.run(save_apart, str(tmp_path / "checkpoint"), False) == ["", "", "", ""]
    assert whole_number(tmp_path / "checkpoint") == 2


def test_a_rank_that_never_comes_is_given_up(ranks: Ranks, old: Path) -> None:
    before = contents(old)

    for seconds, said in ranks.run(try_to_save, str(old), 0, "finish_plan", {"timeout_s": 1.0}):
        assert seconds < 10
        assert "failed in finish_plan" in said[0]
        assert all("no sign of life from other ranks in time" in said[rank] for rank in (1, 2, 3))
    assert contents(old) == before

    ranks.run(save_number, str(old), 3, {})
    assert whole_number(old) == 3


@pytest.mark.parametrize("failing", [0, 2])
def test_a_killed_rank_leaves_the_old_checkpoint(ranks: Ranks, old: Path, failing: int) -> None:
    before = contents(old)

    ranks.start(try_to_save, str(old), failing, "kill", {}, timeout_s=2)
    results = ranks.results()

    assert isinstance(results[failing], Killed)
    for rank, result in enumerate(results):
        if rank != failing:
            assert result[0] < 15
            assert result[1], "nothing was raised"
    assert whole_number(old) == 1  # opening it may tidy up
    assert {name: data for name, data in contents(old).items() if not name.startswith(".")} == before

    ranks.run(save_number, str(old), 3, {})
    assert whole_number(old) == 3
    assert sorted(contents(old)) == ["model.safetensors"]


def test_shards_of_more_ranks_do_not_survive(ranks: Ranks, old: Path) -> None:
    (old / "notes.txt").write_text("mine")
    assert len(list(old.glob("model-*"))) > 4

    ranks.run(save_number, str(old), 2, {"max_shard_size": "200KB"})

    assert whole_number(old) == 2
    n_files = len(list(old.glob("model-*")))
    assert all(
        name.endswith(f"of-{n_files:05d}.safetensors") for name in os.listdir(old) if name.startswith("model-")
    )
    ranks.run(save_number, str(old), 3, {})
    assert sorted(os.listdir(old)) == ["model.safetensors", "notes.txt"]


def test_a_rank_that_does_not_see_the_directory_is_told_what_to_do(tmp_path: Path) -> None:
    reserved = Reserved(str(tmp_path / "on another machine"), 100, bytes(16))
    assigned = FillAssignment((reserved,), [PartToWrite(0, "w", Place(0, 16), is_whole=True)], [])
    planner = DefaultSavePlanner()
    planner.set_up_planner({"w": torch.ones(4)}, is_coordinator=True)
    plan = planner.create_local_plan()

    with pytest.raises(SourceMissingError, match="All ranks must see the directory"):
        write_parts(RankParts(plan, planner), assigned, durable=False, beat=lambda: None)


def test_two_jobs_at_one_place_are_refused_on_all_ranks(ranks: Ranks, old: Path) -> None:
    before = contents(old)

    with transaction(old, "model"):
        for _, said in ranks.run(try_to_save, str(old), -1, "", {}):
            assert set(said) == {0, 1, 2, 3}
            assert all(text.startswith("BusyError: ") for text in said.values()), said
    assert contents(old) == before

    ranks.run(save_number, str(old), 3, {})
    assert whole_number(old) == 3


def wait_for(path: Path) -> None:
    until = time.monotonic() + 5
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.001)


@pytest.mark.soak
def test_a_rank_killed_at_any_time_leaves_the_old_or_the_new_one(ranks: Ranks, old: Path, tmp_path: Path) -> None:
    times = random.Random(SEED + 20)
    last, n_killed, n_unfinished, n_staged = 1, 0, 0, 0
    for number in range(2, N_KILLS + 2):
        ready = tmp_path / f"ready-{number}"
        ranks.start(save_when_ready, str(old), number, str(ready), timeout_s=5)
        while not ready.exists():
            time.sleep(0.001)
        if number % 2:
            time.sleep(times.uniform(0, SAVE_S))
        else:
            wait_for(old / ".model.tensorkeep-staging")
        ranks.kill(times.randrange(4))

        results = ranks.results()

        n_killed += any(isinstance(result, Killed) for result in results)
        n_staged += (old / ".model.tensorkeep-staging").exists()
        found = whole_number(old)
        assert found in {last, number}
        n_unfinished += found == last
        last = found

    print(f"{n_killed} killed, {n_unfinished} before the commit, {n_staged} left staged files")
    assert n_killed >= N_KILLS // 2
    assert n_unfinished, "no kill came before the commit"


def test_a_full_disk_at_any_place_leaves_every_byte(tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("no unshare(1) to mount a small disk with")
    within = ["unshare", "--mount", "--map-root-user"]
    probe = [*within, "mount", "-t", "tmpfs", "tmpfs", tmp_path]
    if (found := subprocess.run(probe, capture_output=True, check=False)).returncode:
        pytest.skip(f"no rights to mount a small disk: {found.stderr!r}")

    done = forks.run(HERE / "small_disk.py", tmp_path, own_mounts=True)

    assert done.returncode == 0, done.stderr[-3000:]
    failures = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(failures) >= 3
    assert all(failure["as before"] for failure in failures)
    assert all("No space left" in text for failure in failures for text in failure["said"]), failures
    assert any("rank 0: " in text for failure in failures for text in failure["said"])

"""The demo runs as `make demo` runs it, and its run ends as if nobody had killed it, wherever that happens."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tensorkeep
from tensorkeep.store import CheckpointStore
from tests.support import ROOT, forks

EXAMPLES = ROOT / "examples"
N_EPOCHS = 12


def train(directory: Path, *options: str) -> tuple[int, list[dict[str, float]]]:
    done = forks.run(EXAMPLES / "digits.py", directory, *options)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """What the demo left, and what it said."""
    folder = tmp_path_factory.mktemp("demo")
    done = subprocess.run([sys.executable, EXAMPLES / "demo.py"], cwd=folder, capture_output=True, encoding="utf-8")
    assert not done.returncode, done.stdout + done.stderr
    return folder / "demo-out", done.stdout


def test_both_runs_end_with_the_same_bytes(demo: tuple[Path, str]) -> None:
    output, said = demo
    ends = [CheckpointStore(output / name).path_of(N_EPOCHS) for name in ("uninterrupted", "killed")]

    one, other = ({path.name: path.read_bytes() for path in Path(end).glob("*.safetensors")} for end in ends)

    assert one == other
    assert "tensors whose bytes are identical: 28 of 28" in said
    assert "files whose bytes are identical: 6 of 6" in said
    assert re.search(r"killed by SIGKILL", said)
    assert re.search(r"incomplete", said)
    accuracies = re.search(r"accuracy\s+(\S+)%\s+(\S+)%", said).groups()
    assert accuracies[0] == accuracies[1]
    assert float(accuracies[0]) > 95


def test_the_steps_that_stay_are_whole(demo: tuple[Path, str]) -> None:
    store = CheckpointStore(demo[0] / "killed")

    assert store.steps() == sorted({store.best(), N_EPOCHS - 2, N_EPOCHS - 1, N_EPOCHS})
    assert all(tensorkeep.verify(store.path_of(step)).is_whole for step in store)
    assert store.load()["epoch"] == N_EPOCHS


@pytest.mark.parametrize("epoch", [1])  # the demo itself dies later
def test_a_run_killed_in_a_save_goes_on_with_the_last_whole_one(
    demo: tuple[Path, str], tmp_path: Path, epoch: int
) -> None:
    status, said = train(tmp_path, "--die-in", str(epoch))

    assert status == -signal.SIGKILL
    assert [each["epoch"] for each in said] == list(range(1, epoch + 1))
    assert CheckpointStore(tmp_path).latest() == (epoch - 1 or None)

    status, said = train(tmp_path)

    assert not status
    assert [each["epoch"] for each in said] == list(range(epoch, N_EPOCHS + 1))
    ends = [CheckpointStore(folder).load()["model"] for folder in (tmp_path, demo[0] / "uninterrupted")]
    assert ends[0].keys() == ends[1].keys()
    assert all(torch.equal(tensor, ends[1][name]) for name, tensor in ends[0].items())

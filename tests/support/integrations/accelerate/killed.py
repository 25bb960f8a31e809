"""Kills runs of accelerate at random, for `test_accelerate_kill`: `kill_accelerate.py FOLDER NAMING TIMES`.

NAMING is `one`, where each save replaces the directory of the last, or `numbered`, where two are kept.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # noqa: F401 - which the first step of an optimizer would import in each run
from torch import nn

from tensorkeep.checkpoint import verify_folder
from tests.support.integrations.accelerate.runs import Run, make_run
from tests.support.kill_at_random import Ready, kill_at_random

WIDTH = 400
"""A save of about 4 MB, most of it by the optimizer."""


class Counter:
    """What says how far a run is; it must fit what all files hold."""

    def __init__(self) -> None:
        self.steps = 0

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]


def make(folder: Path, naming: str) -> tuple[Run, Counter]:
    numbering = {"project": folder, "total_limit": 2} if naming == "numbered" else {}
    model = nn.Sequential(nn.Linear(4, WIDTH), nn.Dropout(0.5), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1))
    run = make_run(0, model=model, **numbering)
    counter = Counter()
    run.accelerator.register_for_checkpointing(counter)
    return run, counter


def place(folder: Path, naming: str) -> Path | None:
    return None if naming == "numbered" else folder / "state"


def train(folder: Path, naming: str, ready: Ready, *, n_steps: int | None = None) -> None:
    """Go on from what is there, and save after each step."""
    run, counter = make(folder, naming)
    if n_steps is None:
        run.accelerator.load_state(place(folder, naming))
    ready()
    batch = torch.ones(8, 4), torch.ones(8, 1)
    while n_steps is None or counter.steps < n_steps:
        run.accelerator.backward((run.model(batch[0]) - batch[1]).square().mean())
        run.optimizer.step()
        run.scheduler.step() if counter.steps < 150 else None
        run.optimizer.zero_grad()
        with torch.no_grad():
            run.model[-1].bias.fill_(counter.steps + 1)
        counter.steps += 1
        run.accelerator.save_state(place(folder, naming))


def look(folder: Path, naming: str) -> int:
    """Load what is there, and make sure that all of it is of the same step."""
    run, counter = make(folder, naming)
    run.accelerator.load_state(place(folder, naming))
    steps = counter.steps
    assert run.model[-1].bias.item() == steps
    assert run.optimizer.state_dict()["state"][0]["step"].item() == steps
    assert run.scheduler.state_dict()["last_epoch"] == min(steps, 150)
    for path in (folder / "checkpoints").glob("checkpoint_*"):
        assert verify_folder(path) == [], path
    return steps


def main(folder: Path, naming: str, times: int, seed: int) -> None:
    """Kill, and print what came of it."""
    torch.set_num_threads(1)
    gc.freeze()  # what was imported, which every run would look through
    report = kill_at_random(
        lambda path, ready: train(path, naming, ready),
        lambda path: look(path, naming),
        folder,
        first=lambda path: train(path, naming, lambda: None, n_steps=2),
        times=times,
        seed=seed,
        span_s=0.25,
    )
    left = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    print(json.dumps(report._asdict() | {"left": left}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))

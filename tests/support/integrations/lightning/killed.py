"""Kills a real training at random times: `kill_lightning.py FOLDER PLUGIN TIMES`. Prints what came of it, as JSON.

The last run ends, and is compared with one that was never killed.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import blake3  # noqa: F401 - once, and not in each run
import numpy as np
import omegaconf  # noqa: F401
import torch
import torch._dynamo  # noqa: F401 - which the first step of an optimizer would import in each run

import tensorkeep
from tensorkeep.arrays import adapter_for
from tensorkeep.integrations import lightning
from tests.support.integrations.lightning.runs import Regressor, ResumableLoader, checkpoints, exactly, trainer
from tests.support.kill_at_random import Ready, kill_at_random

adapter_for("torch", "cpu")

WIDTH = 50_000  # 5 MB in each checkpoint


class Wide(Regressor):
    """Says that training has begun when it has saved once, which takes longer than what comes after it."""

    ready: Any = None

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if self.ready is not None and len(self.losses) == 2:
            self.ready()

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)]


def run(directory: Path, plugin: str, ready: Ready | None, n_steps: int, *, seed: int, saves: bool = True) -> Any:
    """Go on from the last checkpoint, and save every step, as two files."""
    for seed_all in (random.seed, np.random.seed, torch.manual_seed):
        seed_all(seed)
    module = Wide(width=WIDTH)
    module.ready = ready
    made = trainer(
        directory,
        plugins=[getattr(lightning, plugin)(durable=False)],
        callbacks=[
            lightning.RandomState(),
            *([checkpoints(directory, save_top_k=1, save_last=True, every_n_train_steps=1)] if saves else []),
        ],
        max_epochs=100_000,
        limit_val_batches=0,
        enable_checkpointing=saves,
    )
    made.fit_loop.epoch_loop.max_steps = n_steps
    made.fit(module, ResumableLoader(), ckpt_path="last" if saves else None)
    return made


def newest(directory: Path) -> int:
    """Verify all that stands there under the name of a checkpoint, and return the step of the newest."""
    steps = []
    for path in directory.glob("*.ckpt"):
        assert tensorkeep.verify(path).is_whole, path
        loaded = lightning.TensorkeepCheckpointIO(verify=False).load_checkpoint(path)
        assert len(loaded["state_dict"]["layers.0.weight"]) == WIDTH
        steps.append(loaded["global_step"])
    return max(steps)


def main(directory: Path, plugin: str, times: int, seed: int) -> None:
    report = kill_at_random(
        lambda folder, ready: run(folder, plugin, ready, 1_000_000, seed=os.getpid()),
        newest,
        directory,
        first=lambda folder: run(folder, plugin, None, 4, seed=1),
        times=times,
        seed=seed,
        span_s=0.15,
    )
    left = sorted(path.name for path in directory.iterdir())
    n_steps = report.progress[-1] + 2
    resumed = run(directory, plugin, None, n_steps, seed=2)
    whole = run(directory, plugin, None, n_steps, seed=1, saves=False)
    is_same = exactly(_states(resumed), _states(whole))
    print(json.dumps({**report._asdict(), "left": left, "is_same": is_same}))


def _states(made: Any) -> Any:
    return made.lightning_module.state_dict(), [each.state_dict() for each in made.optimizers], torch.get_rng_state()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))

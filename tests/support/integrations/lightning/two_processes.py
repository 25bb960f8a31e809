"""Trains in two processes, at once and stopped, and compares: `ddp_lightning.py FOLDER PLUGIN`.

Each process prints what it found: rank, whether all is the same, and whether the ranks drew other random numbers.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tensorkeep
from tensorkeep.integrations import lightning
from tests.support.integrations.lightning.runs import Regressor, checkpoints, exactly, loader, trainer


def fit(directory: Path, plugin: str, max_epochs: int, seed: int, **options: Any) -> Any:
    made = trainer(
        directory,
        plugins=[getattr(lightning, plugin)()],
        callbacks=[lightning.RandomState(), checkpoints(directory, save_last=True)],
        max_epochs=max_epochs,
        strategy="ddp",
        devices=2,
    )
    seed += 10 * made.global_rank
    for seed_all in (random.seed, np.random.seed, torch.manual_seed):
        seed_all(seed)
    made.fit(Regressor(), loader(), loader(shuffle=False), **options)
    return made


def main(directory: Path, plugin: str) -> None:
    whole = fit(directory / "whole", plugin, 3, 1)
    fit(directory / "stopped", plugin, 2, 1)
    rest = fit(directory / "stopped", plugin, 3, 2, ckpt_path="last")
    tested = rest.test(rest.lightning_module, loader(shuffle=False), ckpt_path="best", verbose=False)

    ours, theirs = rest.lightning_module, whole.lightning_module
    report = {
        "rank": rest.global_rank,
        "same weights": exactly(dict(ours.state_dict()), dict(theirs.state_dict())),
        "same losses": ours.losses == theirs.losses[-len(ours.losses) :],
        "losses": ours.losses,
        "tested": "valid_loss" in tested[0],
    }
    if rest.global_rank == 0:
        report["files"] = sorted(path.name for path in (directory / "stopped").iterdir())
        report["whole"] = all(tensorkeep.verify(path).is_whole for path in (directory / "stopped").iterdir())
    (directory / f"rank {rest.global_rank}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
    os._exit(0)  # the interpreter's own end may be aborted by a thread of gloo: see tests/support/forks.py

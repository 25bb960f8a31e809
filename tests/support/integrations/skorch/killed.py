"""Kills the training of a net at random, again and again: `kill_skorch.py DIRECTORY TIMES FORM`.

FORM is `set` for a file for each part, or `file` for one file with all. Prints a line of JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo  # noqa: F401 - optimizers import it, which would take a second in each fork
from skorch import NeuralNetRegressor
from skorch.callbacks import Callback, LRScheduler
from torch import nn

import tensorkeep
from tensorkeep.integrations.skorch import Checkpoint, LoadInitState, load_params
from tests.support.kill_at_random import Ready, kill_at_random

torch.set_num_threads(1)
X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(24, 1)
Y = X**2
N_BATCHES = 3
FORMS: dict[str, dict[str, Any]] = {"set": {}, "file": {"f_checkpoint": "all.safetensors"}}


class Large(nn.Module):
    """Many parameters, most of which are idle, and a count of the batches that it was trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.active = nn.Linear(1, 1)
        self.idle = nn.Parameter(torch.zeros(500_000))
        self.register_buffer("n_batches", torch.zeros((), dtype=torch.int64))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.n_batches += 1
        return self.active(values) + self.idle[:1]


class Begun(Callback):
    def __init__(self, ready: Ready) -> None:
        self.ready = ready

    def on_epoch_begin(self, net: Any, **kwargs: Any) -> None:
        self.ready()
        self.ready = lambda: None


def checkpoint_in(directory: Path, form: str) -> Checkpoint:
    return Checkpoint(monitor=None, dirname=str(directory), **FORMS[form])


def make(callbacks: list[Any], epochs: int) -> NeuralNetRegressor:
    return NeuralNetRegressor(
        Large, max_epochs=epochs, batch_size=8, train_split=None, optimizer=torch.optim.Adam, verbose=0,
        iterator_train__shuffle=True, callbacks=callbacks,
    )  # fmt: skip


def train(directory: Path, form: str, ready: Ready, epochs: int) -> None:
    checkpoint = checkpoint_in(directory, form)
    schedule = LRScheduler("StepLR", step_size=1, gamma=0.999)
    make([Begun(ready), LoadInitState(checkpoint), schedule, checkpoint], epochs).fit(X, Y)


def look(directory: Path, form: str) -> int:
    """Return the epoch of what is there, after all parts were found to be of it."""
    net = make([], 1)
    load_params(net, checkpoint=checkpoint_in(directory, form))
    epoch = len(net.history)
    steps = {int(state["step"]) for state in net.optimizer_.state_dict()["state"].values()}
    file = directory / ("training.safetensors" if form == "set" else "all.safetensors")
    saved = tensorkeep.load(file) if form == "set" else tensorkeep.load(file)["training"]
    schedule = saved["callbacks"]["LRScheduler"]["scheduler"]
    found = (int(net.module_.n_batches), steps, schedule["last_epoch"])
    assert found == (epoch * N_BATCHES, {epoch * N_BATCHES}, epoch), f"parts of several epochs: {epoch}, {found}"
    return epoch


def main(directory: Path, times: int, form: str, seed: int) -> None:
    report = kill_at_random(
        lambda folder, ready: train(folder, form, ready, 10_000),
        lambda folder: look(folder, form),
        directory,
        first=lambda folder: train(folder, form, lambda: None, 1),
        times=times,
        seed=seed,
        span_s=0.3,
    )
    print(json.dumps(report._asdict()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))

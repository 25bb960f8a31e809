"""A net that two processes of accelerate train, and that goes on: `two_processes_skorch.py DIRECTORY`.

Prints a line of JSON for each process.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from accelerate import Accelerator, debug_launcher
from skorch import NeuralNetClassifier
from skorch.callbacks import LRScheduler
from skorch.hf import AccelerateMixin

from tensorkeep.integrations.skorch import Checkpoint, LoadInitState
from tests.support.integrations.skorch.nets import Layers, X, Y


class Net(AccelerateMixin, NeuralNetClassifier):
    pass


class Loss:
    """A loss that is no module: accelerate wraps only those that have parameters."""

    def __call__(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.nll_loss(scores.log(), labels)


def fit(accelerator: Accelerator, directory: str) -> Any:
    checkpoint = Checkpoint(monitor=None, dirname=directory)
    schedule = LRScheduler("StepLR", step_size=1, gamma=0.5)
    callbacks = [LoadInitState(checkpoint), schedule, checkpoint]
    net = Net(
        Layers,
        criterion=Loss,
        accelerator=accelerator,
        max_epochs=2,
        lr=0.8,
        train_split=None,
        predict_nonlinearity=None,
        callbacks=callbacks,
        verbose=0,
    )
    return net.fit(X, Y)


def train(directory: str) -> None:
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    first = fit(accelerator, directory)
    weight = first.module_.last.weight.clone()
    torch.manual_seed(1)  # what the second begins with comes from the files
    second = fit(accelerator, directory)
    said = {
        "processes": accelerator.num_processes,
        "epochs": [len(first.history), len(second.history)],
        "lr": second.optimizer_.param_groups[0]["lr"],
        "same weights": bool(
            torch.equal(accelerator.gather(second.module_.last.weight)[:2], second.module_.last.weight)
        ),
        "trained": not torch.equal(weight, second.module_.last.weight),
    }
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    debug_launcher(train, args=(sys.argv[1],), num_processes=2)

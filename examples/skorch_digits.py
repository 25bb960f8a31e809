"""Train a skorch net on scikit-learn's digits. Killed at any time, it resumes from the last complete save.

    python examples/skorch_digits.py run
    python examples/skorch_digits.py run --die-in 4    # kills itself at the end of epoch 4, before it is saved

Started again, it ends with the same weights, to the last bit, as an uninterrupted run. Prints the accuracy.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback, LRScheduler
from torch import nn

from tensorkeep.integrations.skorch import Checkpoint, LoadInitState  # was: from skorch.callbacks import …

N_EPOCHS = 8
N_VALID = 360


class Digits(nn.Module):
    """A network of 0.1 million parameters with dropout."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.4)),
            *(nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.4)),
            *(nn.Linear(width, 10), nn.Softmax(-1)),
        )

    def forward(self, images: torch.Tensor) -> Any:
        return self.layers(images)


class Die(Callback):  # type: ignore[misc]  # skorch has no types
    """Kills the process at the end of an epoch: nothing is closed, flushed or cleaned up."""

    def __init__(self, epoch: int | None) -> None:
        self.epoch = epoch

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:  # noqa: ARG002 - the datasets
        if len(net.history) == self.epoch:
            os.kill(os.getpid(), signal.SIGKILL)


def train(directory: str, die_in: int | None = None) -> float:
    """Train up to `N_EPOCHS` from the last saved epoch, and return the accuracy.

    Args:
        directory: Where the checkpoint is, if there is one.
        die_in: An epoch at whose end the process kills itself.
    """
    torch.set_num_threads(1)  # more are slower for so small a network
    torch.manual_seed(0)
    images, labels = load_images()
    checkpoint = Checkpoint(monitor=None, dirname=directory)
    net = NeuralNetClassifier(
        Digits,
        optimizer=torch.optim.AdamW,
        lr=0.002,
        max_epochs=N_EPOCHS - epochs_done(directory),
        iterator_train__shuffle=True,
        callbacks=[
            LoadInitState(checkpoint),
            LRScheduler("CosineAnnealingLR", T_max=N_EPOCHS),
            Die(die_in),
            checkpoint,
        ],
    )
    net.fit(images[N_VALID:], labels[N_VALID:])
    return float((net.predict(images[:N_VALID]) == labels[:N_VALID]).mean())


def epochs_done(directory: str) -> int:
    """Return the number of saved epochs, because skorch's `max_epochs` counts additional ones."""
    history = Path(directory, "history.json")
    return len(json.loads(history.read_text(encoding="utf-8"))) if history.exists() else 0


def load_images() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the digits, of shape (1797, 64) and values 0 to 1, and their labels, in a fixed random order."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    return (digits.data[order] / 16).astype(np.float32), digits.target[order]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", help="where the checkpoint is")
    parser.add_argument("--die-in", type=int, metavar="EPOCH", help="kill this process at the end of that epoch")
    arguments = parser.parse_args()
    print(f"accuracy: {train(arguments.directory, arguments.die_in):.3f}")

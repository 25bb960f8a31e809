"""Train a small network on scikit-learn's digits. Killed at any time, it resumes from the last complete save.

    python examples/digits.py checkpoints
    python examples/digits.py checkpoints --die-in 7    # kills itself while it saves epoch 7

Started again, it ends with the same weights, to the last bit, as an uninterrupted run: the random generators of
dropout, shuffling and noise are saved and restored with everything else.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tensorkeep.store import CheckpointStore
from tensorkeep.torch import capture, restore

N_EPOCHS = 12
N_VALID = 360
WIDTH = 640


class Training:
    """Everything a run consists of. `objects` have a state; the images are the same in every run."""

    def __init__(self) -> None:
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
        images, labels = load_images()
        self.valid_images, self.valid_labels = images[:N_VALID], labels[:N_VALID]
        self.shuffling = torch.Generator().manual_seed(1)
        self.noise = np.random.default_rng(2)
        self.loader = DataLoader(
            TensorDataset(images[N_VALID:], labels[N_VALID:]), batch_size=64, shuffle=True, generator=self.shuffling
        )
        self.model = make_model()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), weight_decay=0.05)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, max_lr=0.002, total_steps=N_EPOCHS * len(self.loader)
        )

    @property
    def objects(self) -> dict[str, Any]:
        """What to save and restore, by name."""
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "shuffling": self.shuffling,
            "noise": self.noise,
        }

    def run_epoch(self) -> float:
        """Train on every image once, and return the mean loss."""
        self.model.train()
        total = 0.0
        for images, labels in self.loader:
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(self.blurred(images)), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            self.scheduler.step()
            total += loss.item()
        return total / len(self.loader)

    def blurred(self, images: torch.Tensor) -> torch.Tensor:
        """Return the images with fresh noise."""
        noise = self.noise.normal(scale=0.2, size=images.shape)
        return images + torch.from_numpy(noise).float()

    @torch.inference_mode()
    def measure(self) -> tuple[float, float]:
        """Return loss and accuracy on the held-out images."""
        self.model.eval()
        scores = self.model(self.valid_images)
        accuracy = (scores.argmax(1) == self.valid_labels).float().mean()
        return nn.functional.cross_entropy(scores, self.valid_labels).item(), accuracy.item()


def load_images() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the digits, of shape (1797, 8, 8) and values 0 to 1, and their labels, in a fixed random order."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = torch.from_numpy(digits.images[order] / 16).float()
    return images, torch.from_numpy(digits.target[order])


def make_model() -> nn.Module:
    """Return a network of 0.5 million parameters."""
    layers: dict[str, nn.Module] = {
        "flatten": nn.Flatten(),
        "first": nn.Linear(64, WIDTH),
        "relu_1": nn.ReLU(),
        "dropout_1": nn.Dropout(0.5),
        "second": nn.Linear(WIDTH, WIDTH),
        "relu_2": nn.ReLU(),
        "dropout_2": nn.Dropout(0.5),
        "last": nn.Linear(WIDTH, 10),
    }
    return nn.Sequential(OrderedDict(layers))


def train(directory: str, die_in: int | None = None) -> None:
    """Train to the end, from the last saved epoch.

    Args:
        directory: Where to keep checkpoints.
        die_in: Epoch during whose save the process kills itself.
    """
    torch.set_num_threads(1)  # more are slower for so small a network
    training = Training()
    store = CheckpointStore(directory, keep_last=3)
    done = 0
    if store.latest() is not None:
        done = restore(store.load(), **training.objects)["epoch"]
    for epoch in range(done + 1, N_EPOCHS + 1):
        loss = training.run_epoch()
        valid_loss, accuracy = training.measure()
        print(json.dumps({"epoch": epoch, "loss": loss, "accuracy": accuracy}), flush=True)
        state = capture(**training.objects, epoch=epoch)
        store.save(epoch, state, {"valid_loss": valid_loss}, progress=dying() if epoch == die_in else None)


def dying() -> Callable[[int, int], None]:
    """Return a progress callback that kills the process at a random point of the save."""
    fate = random.SystemRandom().random()

    def die(nbytes: int, total: int) -> None:
        if nbytes >= fate * total:
            os.kill(os.getpid(), signal.SIGKILL)  # nothing is closed, flushed or cleaned up

    return die


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", help="where to keep checkpoints")
    parser.add_argument("--die-in", type=int, metavar="EPOCH", help="kill this process while it saves that epoch")
    arguments = parser.parse_args()
    train(arguments.directory, arguments.die_in)

"""A run of ten steps with every optimizer and scheduler of torch: at once, or in two halves of five.

    python training_run.py whole DIRECTORY
    python training_run.py first DIRECTORY
    python training_run.py second DIRECTORY

Chance comes in from everywhere: dropout, a shuffling loader, and augmentation by Python, NumPy and a generator of its
own. What there is at the end of each is saved, one file for each recipe.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn, optim
from torch.optim import lr_scheduler as lr
from torch.utils.data import DataLoader, TensorDataset

import tensorkeep
from tensorkeep.torch import capture, restore

N_STEPS = 10
BATCH_SIZE = 8
N_SAMPLES = BATCH_SIZE * N_STEPS // 2  # the halves are epochs

RECIPES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sgd": (lambda p: optim.SGD(p, 0.1, momentum=0.9), lambda o: lr.StepLR(o, 3)),
    "sgd-nesterov": (
        lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
        lambda o: optim.swa_utils.SWALR(o, 0.05),
    ),
    "sgd-fused": (lambda p: optim.SGD(p, 0.1, momentum=0.9, fused=True), lambda o: lr.MultiStepLR(o, [2, 6, 6])),
    "adam-amsgrad": (lambda p: optim.Adam(p, amsgrad=True), lambda o: lr.CosineAnnealingWarmRestarts(o, 3)),
    "adam-foreach": (lambda p: optim.Adam(p, foreach=True), lambda o: lr.LambdaLR(o, lambda epoch: 0.9**epoch)),
    "adam-fused": (lambda p: optim.Adam(p, fused=True), lambda o: lr.LinearLR(o)),
    "adam-tensor-lr": (lambda p: optim.Adam(p, torch.tensor(0.01)), lambda o: lr.ExponentialLR(o, 0.9)),
    "adamw": (optim.AdamW, lambda o: lr.OneCycleLR(o, 0.1, 2 * N_STEPS)),
    "adamw-groups": (lambda p: optim.AdamW(groups(p), 0.01), lambda o: lr.CosineAnnealingLR(o, N_STEPS)),
    "adafactor": (optim.Adafactor, lambda o: lr.PolynomialLR(o, 2 * N_STEPS)),
    "adadelta": (optim.Adadelta, lambda o: lr.MultiplicativeLR(o, lambda epoch: 0.95)),
    "adagrad": (optim.Adagrad, lambda o: lr.CyclicLR(o, 0.01, 0.1, 3, cycle_momentum=False)),
    "adamax": (optim.Adamax, lambda o: lr.ConstantLR(o)),
    "asgd": (optim.ASGD, lambda o: lr.SequentialLR(o, [lr.ConstantLR(o), lr.ExponentialLR(o, 0.9)], [3])),
    "lbfgs": (
        lambda p: optim.LBFGS(p, 0.1, max_iter=3, history_size=4),
        lambda o: lr.ReduceLROnPlateau(o, patience=1),
    ),
    "lbfgs-wolfe": (lambda p: optim.LBFGS(p, max_iter=3, line_search_fn="strong_wolfe"), lambda o: lr.StepLR(o, 2)),
    "muon": (lambda p: optim.Muon([weight for weight in p if weight.ndim == 2]), lambda o: lr.StepLR(o, 2)),
    "nadam": (
        optim.NAdam,
        lambda o: lr.ChainedScheduler([lr.ConstantLR(o), lr.LambdaLR(o, lambda epoch: 0.9**epoch)]),
    ),
    "radam": (optim.RAdam, lambda o: lr.CyclicLR(o, 0.001, 0.01, 3, mode="exp_range", gamma=0.9)),
    "rmsprop": (
        lambda p: optim.RMSprop(p, momentum=0.9, centered=True),
        lambda o: lr.OneCycleLR(o, 0.1, 2 * N_STEPS),
    ),
    "rprop": (optim.Rprop, lambda o: lr.ReduceLROnPlateau(o, patience=0)),
}
"""Name to optimizer and scheduler."""


def groups(parameters: Any) -> list[dict[str, Any]]:
    listed = list(parameters)
    return [{"params": listed[:2], "weight_decay": 0.1}, {"params": listed[2:], "lr": 0.02}]


class Run:
    """Everything that a run consists of."""

    def __init__(self, recipe: str, seed: int) -> None:
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 3))
        make_optimizer, make_scheduler = RECIPES[recipe]
        self.optimizer = make_optimizer(self.model.parameters())
        self.scheduler = make_scheduler(self.optimizer)
        self.scaler = torch.amp.GradScaler("cpu", growth_interval=3)
        self.shuffling = torch.Generator().manual_seed(seed)
        self.noise = np.random.default_rng(seed)
        source = torch.Generator().manual_seed(7)  # the data are the same whatever the seed
        samples = torch.randn(N_SAMPLES, 6, generator=source)
        labels = torch.randint(3, (N_SAMPLES,), generator=source)
        self.loader = DataLoader(TensorDataset(samples, labels), BATCH_SIZE, shuffle=True, generator=self.shuffling)
        self.losses: list[float] = []

    @property
    def objects(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "scaler": self.scaler,
            "shuffling": self.shuffling,
            "noise": self.noise,
        }

    def epoch(self) -> None:
        for samples, labels in self.loader:
            loss = self.step(self.augmented(samples), labels)
            self.losses.append(loss)
            plateau = isinstance(self.scheduler, lr.ReduceLROnPlateau)
            self.scheduler.step(loss) if plateau else self.scheduler.step()

    def augmented(self, samples: torch.Tensor) -> torch.Tensor:
        noise = np.random.normal(scale=0.1, size=samples.shape) + self.noise.normal(scale=0.1, size=samples.shape)
        return (samples.flip(0) if random.random() < 0.5 else samples) + torch.from_numpy(noise).float()

    def step(self, samples: torch.Tensor, labels: torch.Tensor) -> float:
        def closure() -> torch.Tensor:
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(samples), labels)
            scaled = loss if is_lbfgs else self.scaler.scale(loss)
            scaled.backward()
            return loss

        is_lbfgs = isinstance(self.optimizer, optim.LBFGS)
        if is_lbfgs:
            return self.optimizer.step(closure).item()
        loss = closure()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()

    def save(self, path: Path) -> None:
        tensorkeep.save(capture(**self.objects, losses=self.losses), path)


def main(part: str, directory: Path) -> None:
    for recipe in RECIPES:
        run = Run(recipe, seed=99 if part == "second" else 0)
        if part == "second":
            run.losses = restore(directory / f"first-{recipe}.safetensors", **run.objects)["losses"]
        for _ in range(2 if part == "whole" else 1):
            run.epoch()
        run.save(directory / f"{part}-{recipe}.safetensors")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

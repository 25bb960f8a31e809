"""Small runs with chance from everywhere, which save and go on."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import accelerate
import numpy as np
import torch
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import DataLoaderConfiguration, ProjectConfiguration, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tensorkeep.integrations.accelerate import Accelerator

BATCH = 4
N_BATCHES = 6


class Average:
    """Something that is registered for checkpointing: nested data with tensors in it."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.weights = torch.zeros(3)
        self.array = np.zeros(2, np.int16)

    def state_dict(self) -> dict[str, Any]:
        return {"losses": self.losses, "weights": self.weights, "array": self.array, "names": ("a", None)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.losses, self.weights, self.array = list(state["losses"]), state["weights"], state["array"]
        assert state["names"] == ("a", None)


class NoData:
    """What is registered for checkpointing, and is no data."""

    def state_dict(self) -> dict[str, Any]:
        return {"function": print}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise NotImplementedError


class Run(NamedTuple):
    """What accelerate has prepared."""

    accelerator: Any
    model: Any
    optimizer: Any
    loader: Any
    scheduler: Any
    average: Average


def forget_all() -> None:
    """Undo what accelerate keeps for a whole process."""
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 1))


def make_run(
    seed: int,
    *,
    project: Path | None = None,
    total_limit: int | None = None,
    kind: type = Accelerator,
    seedable: bool = True,
    generator: bool = False,
    model: nn.Module | None = None,
    **configuration: Any,
) -> Run:
    """Make a run that begins by chance; another seed gives another one."""
    forget_all()
    set_seed(seed)
    if project is not None:
        configuration["project_config"] = ProjectConfiguration(
            project_dir=str(project), automatic_checkpoint_naming=True, total_limit=total_limit
        )
    accelerator = kind(
        cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=seedable), **configuration
    )
    model = make_model() if model is None else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=200)
    inputs = torch.arange(4.0 * BATCH * N_BATCHES).reshape(-1, 4) / 100
    shuffling = torch.Generator().manual_seed(7) if generator else None
    loader = DataLoader(
        TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=BATCH, shuffle=True, generator=shuffling
    )
    average = Average()
    accelerator.register_for_checkpointing(average)
    return Run(accelerator, *accelerator.prepare(model, optimizer, loader, scheduler), average)


def step(run: Run, batch: Sequence[torch.Tensor]) -> tuple[float, ...]:
    """Train on a batch; return what it was, and what chance made of it."""
    inputs, targets = batch
    noise = random.random() + np.random.rand()  # augmentation by the generators that everybody has
    with run.accelerator.accumulate(run.model):
        loss = (run.model(inputs + noise) - targets).square().mean()
        run.accelerator.backward(loss)
        run.optimizer.step()
        run.scheduler.step()
        run.optimizer.zero_grad()
    run.average.losses.append(loss.item())
    run.average.weights += loss.item()
    return (loss.item(), noise, run.scheduler.get_last_lr()[0], *inputs[:, 0].tolist())


def train(
    run: Run, epochs: range, *, skip: int = 0, save_after: tuple[int, int] | None = None, path: Path | None = None
) -> list[tuple[float, ...]]:
    """Train, in the first epoch without the batches to skip; after that batch of that epoch save and return."""
    log = []
    for epoch in epochs:
        first = epoch == epochs.start and skip > 0
        batches = run.accelerator.skip_first_batches(run.loader, skip) if first else run.loader
        for number, batch in enumerate(batches):
            log.append(step(run, batch))
            if (epoch, number) == save_after:
                run.accelerator.save_state(path)
                return log
    return log


def everything(run: Run) -> dict[str, Any]:
    """Return all that a run has come to."""
    return copy.deepcopy({
        "model": run.accelerator.unwrap_model(run.model).state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "scheduler": run.scheduler.state_dict(),
        "average": run.average.state_dict(),
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state()[1],
        "python": random.getstate(),
        "step": run.accelerator.step,
    })


def same(one: Any, other: Any) -> bool:
    """Say whether two nested data are equal, to the last bit."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def theirs(seed: int, **configuration: Any) -> Run:
    """Make a run with accelerate's own way to save."""
    return make_run(seed, kind=accelerate.Accelerator, **configuration)

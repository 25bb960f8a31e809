"""Nets trained for ten epochs, at once or in two halves of five in processes of their own.

    python resume_skorch.py whole DIRECTORY
    python resume_skorch.py first DIRECTORY
    python resume_skorch.py second DIRECTORY

Each recipe has chance in dropout and shuffling, and callbacks with a state in another order. What there is at the end
of each is saved, one file for each recipe.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from skorch.callbacks import Callback, EarlyStopping, EpochScoring, Freezer, LRScheduler, Unfreezer
from torch.optim import lr_scheduler as lr

import tensorkeep
from tensorkeep.integrations.skorch import Checkpoint, LoadInitState, TrainEndCheckpoint
from tests.support.integrations.skorch.nets import X, Y, make_net, make_two, parts_of

N_HALF = 5


class Noise(Callback):
    """Disturbs the module with chance from NumPy and from a generator of its own, and counts how often."""

    def __init__(self) -> None:
        self.own = np.random.default_rng(7)
        self.n_times = 0

    def _get_param_names(self) -> list[str]:
        return []

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        self.n_times += 1
        with torch.no_grad():
            net.module_.last.bias += float(self.own.normal() + np.random.normal()) * self.n_times / 100

    def state_dict(self) -> dict[str, Any]:
        return {"own": self.own, "n_times": self.n_times}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.own, self.n_times = state["own"], state["n_times"]


def quiet(**options: Any) -> EarlyStopping:
    return EarlyStopping(sink=print_nothing, **options)


def print_nothing(_: str) -> None:
    """Say nothing."""


Build = Callable[[Path, int], Any]


def recipe(
    before: list[Any], after: list[Any], *, make: Any = make_net, load_first: bool = False, **files: Any
) -> Build:
    """Return what makes a net with callbacks before and after the one that saves."""

    def build(folder: Path, epochs: int) -> Any:
        checkpoint = Checkpoint(**{"monitor": None, "dirname": str(folder), "durable": False, **files})
        load = LoadInitState(checkpoint)
        callbacks = [*(factory() for factory in before), checkpoint, *(factory() for factory in after)]
        callbacks = [load, *callbacks] if load_first else [*callbacks, load]
        return make(callbacks, epochs=epochs, iterator_train__shuffle=True)

    return build


def by_generator(callbacks: Any, **options: Any) -> Any:
    return make_net(callbacks, iterator_train__generator=torch.Generator().manual_seed(3), **options)


def at_the_end(folder: Path, epochs: int) -> Any:
    checkpoint = TrainEndCheckpoint(dirname=str(folder), f_checkpoint="end.safetensors")
    callbacks = [LoadInitState(checkpoint), LRScheduler("StepLR", step_size=2, gamma=0.5), checkpoint]
    return make_net(callbacks, epochs=epochs, iterator_train__shuffle=True)


RECIPES: dict[str, Build] = {
    "nothing else": recipe([], []),
    "schedule before": recipe([lambda: LRScheduler("ExponentialLR", gamma=0.8)], []),
    "schedule after": recipe([], [lambda: LRScheduler("ExponentialLR", gamma=0.8)]),
    "schedule after, load first": recipe([], [lambda: LRScheduler("StepLR", step_size=5)], load_first=True),
    "schedule before, load first": recipe([lambda: LRScheduler("StepLR", step_size=5)], [], load_first=True),
    "own schedule": recipe([lambda: LRScheduler("WarmRestartLR", base_period=3)], []),
    "plateau": recipe([], [lambda: LRScheduler(lr.ReduceLROnPlateau, monitor="valid_loss", patience=0)]),
    "each batch": recipe(
        [
            lambda: LRScheduler(
                "CyclicLR", base_lr=0.01, max_lr=0.1, step_size_up=3, step_every="batch", cycle_momentum=False
            )
        ],
        [],
    ),
    "one cycle": recipe([], [lambda: LRScheduler(lr.OneCycleLR, max_lr=0.1, total_steps=40, step_every="batch")]),
    "patience before": recipe([lambda: quiet(patience=3, load_best=True)], []),
    "patience after": recipe([], [lambda: quiet(patience=3, load_best=True)], load_first=True),
    "patience at an end": recipe([], [lambda: quiet(patience=2, threshold=0.5)]),
    "frozen": recipe([lambda: Freezer("first.*"), lambda: Unfreezer("first.weight", at=3)], []),
    "scores": recipe([lambda: EpochScoring("f1", lower_is_better=False)], [], f_checkpoint="all.safetensors"),
    "noise": recipe([], [Noise], f_checkpoint="all.safetensors"),
    "noise before": recipe([Noise], []),
    "generator": recipe([], [], make=by_generator),
    "two modules": recipe([], [], make=make_two),
    "two modules, one file": recipe([], [], make=make_two, f_checkpoint="all.safetensors"),
    "names with epochs": recipe([], [], f_params="params-{last_epoch[epoch]}.safetensors"),
    "at the end": at_the_end,
}


def train(build: Build, folder: Path, phase: str) -> Any:
    net = build(folder, 2 * N_HALF if phase == "whole" else N_HALF)
    np.random.seed(len(phase))  # the second half must not get its chance from here
    torch.manual_seed(len(phase))
    if phase != "second":
        np.random.seed(1)
        torch.manual_seed(1)
    return net.fit(X, Y)


def main(phase: str, directory: Path) -> None:
    for name, build in RECIPES.items():
        folder = directory / name / ("whole" if phase == "whole" else "halves")
        folder.mkdir(parents=True, exist_ok=True)
        tensorkeep.save(parts_of(train(build, folder, phase)), directory / name / f"{phase}.safetensors")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

"""A run that goes on in a new process, after five steps of ten, is to the last bit the run that was never stopped."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from torch import optim

import tensorkeep
from tests.support import SUPPORT, forks
from tests.support.training_run import N_STEPS, RECIPES, Run

PROGRAM = SUPPORT / "training_run.py"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What each recipe came to: without a stop, after the first half, and after the second in a new process."""
    folder = tmp_path_factory.mktemp("runs")
    for part in ("whole", "first", "second"):
        done = forks.run(PROGRAM, part, folder)
        assert not done.returncode, done.stderr
    return folder


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_resumed_run_ends_with_the_same_file(directory: Path, recipe: str) -> None:
    """A file has everything in it, the states of all random generators too, and equal states give equal bytes."""
    whole, first, second = (
        (directory / f"{part}-{recipe}.safetensors").read_bytes() for part in ("whole", "first", "second")
    )

    assert second == whole
    assert first != whole


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_recipes_train(directory: Path, recipe: str) -> None:
    whole = tensorkeep.load(directory / f"whole-{recipe}.safetensors")
    half = tensorkeep.load(directory / f"first-{recipe}.safetensors")

    assert len(whole["losses"]) == N_STEPS
    assert whole["losses"][: N_STEPS // 2] == half["losses"]
    assert whole["optimizer"]["state"]
    assert whole["scheduler"] != half["scheduler"]
    assert not torch.equal(whole["model"]["4.weight"], half["model"]["4.weight"])
    assert not torch.equal(whole["rng"]["torch"], half["rng"]["torch"])


def test_every_optimizer_and_scheduler_of_torch_is_among_them() -> None:
    runs = [Run(recipe, 0) for recipe in RECIPES]

    optimizers = {type(run.optimizer) for run in runs}
    schedulers = {type(run.scheduler) for run in runs}

    assert optimizers == _classes(optim, optim.Optimizer) - {optim.SparseAdam}  # it wants sparse gradients
    assert schedulers == _classes(optim.lr_scheduler, optim.lr_scheduler.LRScheduler) | {optim.swa_utils.SWALR}


def _classes(module: object, base: type) -> set[type]:
    public = [value for name, value in vars(module).items() if name in module.__all__ and inspect.isclass(value)]
    return {cls for cls in public if issubclass(cls, base) and cls is not base}

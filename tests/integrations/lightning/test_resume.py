"""A run that was stopped and resumed ends as one that never was, bit for bit."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import lightning.pytorch
import numpy as np
import pytest
import torch

from tensorkeep.errors import StateDictMismatchError
from tensorkeep.integrations.lightning import AsyncTensorkeepCheckpointIO, RandomState, TensorkeepCheckpointIO
from tests.support.integrations.lightning.runs import (
    LIBRARIES,
    Regressor,
    ResumableLoader,
    checkpoints,
    exactly,
    loader,
    module_class,
    trainer,
)

libraries = pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES.keys())


class Run:
    """One run: how it is made, and what came of it."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.library: ModuleType = options.pop("library", lightning.pytorch)
        self._plugin = options.pop("plugin", TensorkeepCheckpointIO)
        self._loader = options.pop("loader", loader)
        self._draws = options.pop("draws", False)
        self._random = options.pop("random", True)
        self._saving = options.pop("saving", {})
        self._module = options.pop("module", module_class(self.library))
        self._configure_optimizers = options.pop("configure_optimizers", None)
        self._directory, self._options = directory, options

    def fit(self, max_epochs: int, *, seed: int, ckpt_path: Path | None = None) -> Any:
        for seed_all in (random.seed, np.random.seed, torch.manual_seed):
            seed_all(seed)
        module = self._module()
        if self._draws:
            module.on_train_epoch_start = lambda: module.losses.append(torch.rand(()).item())
        if self._configure_optimizers:
            module.configure_optimizers = partial(self._configure_optimizers, module)
        made = trainer(
            self._directory,
            self.library,
            max_epochs=max_epochs,
            plugins=[self._plugin()] if self._plugin else None,
            callbacks=[
                *([RandomState()] if self._random else []),
                checkpoints(self._directory, self.library, **({"save_top_k": -1} | self._saving)),
            ],
            **self._options,
        )
        made.fit(module, self._loader(), loader(shuffle=False), ckpt_path=ckpt_path)
        return made

    def newest(self) -> Path:
        return max(self._directory.glob("*.ckpt"), key=lambda path: int(path.stem.rpartition("step=")[2]))


def assert_resumes(tmp_path: Path, **options: Any) -> Any:
    """Train four epochs at once, and two and two; compare all that a run has. Return the last trainer."""
    whole = Run(tmp_path / "whole", **options).fit(4, seed=1)
    run = Run(tmp_path / "stopped", **options)
    run.fit(2, seed=1)
    newest = run.newest()

    rest = run.fit(4, seed=2, ckpt_path=newest)

    ours, theirs = rest.lightning_module, whole.lightning_module
    assert 0 < len(ours.losses) < len(theirs.losses)
    assert ours.losses == theirs.losses[-len(ours.losses) :]
    assert exactly(dict(ours.state_dict()), dict(theirs.state_dict()))
    for one, other in zip(rest.optimizers, whole.optimizers, strict=True):
        assert exactly(one.state_dict(), other.state_dict())
    assert exactly(
        rest.lr_scheduler_configs[0].scheduler.state_dict(), whole.lr_scheduler_configs[0].scheduler.state_dict()
    )
    assert exactly(dict(rest.callback_metrics), dict(whole.callback_metrics))
    return rest


@libraries
@pytest.mark.parametrize("plugin", [TensorkeepCheckpointIO, AsyncTensorkeepCheckpointIO])
def test_from_the_end_of_an_epoch(tmp_path: Path, library: ModuleType, plugin: Any) -> None:
    assert_resumes(tmp_path, library=library, plugin=plugin)


@pytest.mark.parametrize(
    "options",
    [
        {"draws": True},
        {"loader": lambda: loader(num_workers=1)},
        {"limit_val_batches": 0},
        {"val_check_interval": 0.5},
        {"saving": {"save_on_train_epoch_end": False}},
        {"accumulate_grad_batches": 2},
        {"precision": "bf16-mixed"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_whatever_else_the_run_does(tmp_path: Path, options: dict[str, Any]) -> None:
    assert_resumes(tmp_path, **options)


@pytest.mark.parametrize(
    ("monitor", "frequency", "options"),
    [
        ("train_loss", 1, {}),
        ("valid_loss", 1, {}),
        ("valid_loss", 2, {}),
        ("valid_loss", 1, {"val_check_interval": 0.5}),
        ("valid_loss", 1, {"saving": {"save_on_train_epoch_end": False}}),
    ],
)
def test_schedules_that_wait_for_a_metric(
    tmp_path: Path, monitor: str, frequency: int, options: dict[str, Any]
) -> None:
    def configure_optimizers(module: Any) -> Any:
        optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=10.0)
        configuration = {"scheduler": schedule, "monitor": monitor, "frequency": frequency}
        return {"optimizer": optimizer, "lr_scheduler": configuration}

    rest = assert_resumes(tmp_path, configure_optimizers=configure_optimizers, **options)

    assert rest.lr_scheduler_configs[0].scheduler.last_epoch == 4 // frequency
    assert rest.optimizers[0].param_groups[0]["lr"] < 0.1


def test_a_schedule_that_is_no_more_takes_no_step(tmp_path: Path) -> None:
    def with_plateau(module: Any) -> Any:
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": "valid_loss"}}

    Run(tmp_path, configure_optimizers=with_plateau).fit(1, seed=1)
    newest = Run(tmp_path).newest()

    rest = Run(tmp_path, configure_optimizers=lambda module: torch.optim.SGD(module.parameters(), 0.1)).fit(
        2, seed=2, ckpt_path=newest
    )

    assert rest.global_step == 12


class ByHand(Regressor):
    """Two optimizers and two schedules, stepped by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.critic = torch.nn.Linear(4, 1)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        for optimizer, part in zip(self.optimizers(), (self.layers, self.critic), strict=True):
            loss = (part(batch[0]) - torch.rand(())).square().mean()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
            self.losses.append(loss.item())
        for schedule in self.lr_schedulers():
            schedule.step()

    def configure_optimizers(self) -> Any:
        one = torch.optim.Adam(self.layers.parameters(), 0.01)
        two = torch.optim.RMSprop(self.critic.parameters(), 0.01, momentum=0.9, centered=True)
        schedules = torch.optim.lr_scheduler
        return [one, two], [schedules.CosineAnnealingLR(one, 50), schedules.StepLR(two, 3)]


def test_several_optimizers_by_hand(tmp_path: Path) -> None:
    rest = assert_resumes(tmp_path, module=ByHand)

    assert rest.optimizers[1].state_dict()["state"][0]["step"] == 24


@libraries
def test_within_an_epoch_if_the_loader_keeps_its_place(tmp_path: Path, library: ModuleType) -> None:
    assert_resumes(tmp_path, library=library, loader=ResumableLoader, saving={"every_n_train_steps": 9})


def test_the_callback_serves_the_plugin_of_lightning_too(tmp_path: Path) -> None:
    assert_resumes(tmp_path, plugin=None)


def test_without_the_callback_lightning_goes_on_with_other_random_numbers(tmp_path: Path) -> None:
    """Why the callback is there; the day this fails, the page about it has to change."""
    with pytest.raises(AssertionError):
        assert_resumes(tmp_path, random=False)


def test_a_checkpoint_without_states_is_resumed(tmp_path: Path) -> None:
    Run(tmp_path, random=False).fit(2, seed=1)

    rest = Run(tmp_path).fit(4, seed=2, ckpt_path=Run(tmp_path).newest())

    assert rest.current_epoch == 4


def test_states_that_were_loaded_for_a_test_do_not_reach_the_next_run(tmp_path: Path) -> None:
    made = Run(tmp_path).fit(1, seed=1)
    made.test(made.lightning_module, loader(shuffle=False), ckpt_path=Run(tmp_path).newest(), verbose=False)
    seeds: list[int] = []
    made.lightning_module.on_train_start = lambda: seeds.append(torch.initial_seed())
    made.fit_loop.max_epochs = 2
    torch.manual_seed(7)

    made.fit(made.lightning_module, loader())

    assert seeds == [7]


@pytest.mark.parametrize("damage", ["processes", "state"])
def test_states_that_do_not_fit_are_an_error_that_says_what_to_do(tmp_path: Path, damage: str) -> None:
    Run(tmp_path).fit(1, seed=1)
    path, plugin = Run(tmp_path).newest(), TensorkeepCheckpointIO()
    checkpoint = plugin.load_checkpoint(path)
    ranks = checkpoint["callbacks"]["RandomState"]["ranks"]
    if damage == "processes":
        ranks.append(ranks[0])
    else:
        ranks[0] = torch.frombuffer(bytearray(Path(path).read_bytes()), dtype=torch.uint8)  # no such states
    plugin.save_checkpoint(checkpoint, path)

    with pytest.raises(StateDictMismatchError, match="Leave out the callback RandomState"):
        Run(tmp_path).fit(2, seed=1, ckpt_path=path)

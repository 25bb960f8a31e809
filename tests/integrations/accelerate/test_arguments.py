"""What is given by mistake, and says so; directories of the user."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tensorkeep.errors import StateDictMismatchError, UnsupportedError
from tensorkeep.integrations.accelerate import keep_safe, load_checkpoint_and_dispatch
from tests.support.integrations.accelerate.runs import everything, make_run, same, step, train


def refused(path: Path, run: Any, match: str) -> None:
    before = everything(run)
    with pytest.raises(StateDictMismatchError, match=match):
        run.accelerator.load_state(path)
    assert same(everything(run), before)


class Backwards(nn.Sequential):
    """A model whose optimizer gets the parameters in another order."""

    def parameters(self, recurse: bool = True) -> Any:
        return reversed([*super().parameters(recurse)])


def layers() -> tuple[nn.Module, ...]:
    return nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 1)


def test_moments_of_other_shapes_are_refused(tmp_path: Path) -> None:
    run = make_run(0)
    train(run, range(1))
    run.accelerator.save_state(tmp_path / "state")

    other = make_run(1, model=Backwards(*layers()))
    refused(tmp_path / "state", other, "optimizers.0 does not fit AdamW.*of shape")

    step(other, next(iter(other.loader)))


def test_another_schedule_is_refused(tmp_path: Path) -> None:
    run = make_run(0)
    run.accelerator.save_state(tmp_path / "state")
    other = make_run(1)
    inner = other.optimizer.optimizer
    other.scheduler.scheduler = torch.optim.lr_scheduler.StepLR(inner, 3)

    refused(tmp_path / "state", other, "schedulers.0 is the state of another kind of scheduler than StepLR")


class Phase(Enum):
    WARMUP = 1


class WithPhase:
    def __init__(self) -> None:
        self.phase: Any = Phase.WARMUP

    def state_dict(self) -> dict[str, Any]:
        return {"phase": self.phase}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.phase = state["phase"]


def test_objects_in_a_registered_state(tmp_path: Path) -> None:
    run, registered = make_run(0), WithPhase()
    run.accelerator.register_for_checkpointing(registered)
    run.accelerator.save_state(tmp_path / "state")
    registered.phase = None

    with pytest.raises(UnsupportedError, match="Pass its class in classes="):
        run.accelerator.load_state(tmp_path / "state")
    run.accelerator.load_state(tmp_path / "state", classes=[Phase])

    assert registered.phase is Phase.WARMUP


def test_a_model_is_no_accelerator() -> None:
    model: Any = nn.Linear(1, 1)

    with pytest.raises(UnsupportedError, match=r"an accelerate\.Accelerator, found torch\.nn"):
        keep_safe(model)


def test_other_shapes_without_a_device_map(tmp_path: Path) -> None:
    run = make_run(0)
    run.accelerator.save_model(nn.Linear(8, 2), tmp_path / "model")

    with pytest.raises(StateDictMismatchError, match="Create the model with the shapes") as caught:
        load_checkpoint_and_dispatch(nn.Linear(8, 3), tmp_path / "model")

    assert "ignore_mismatched" not in str(caught.value)
    assert [name for name, *_ in caught.value.mismatched] == ["weight", "bias"]


def test_the_directory_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    run = make_run(0, project=Path("~/project"))
    run.accelerator.save_state()
    run.accelerator.save_model(run.model, "~/model")
    load_checkpoint_and_dispatch(nn.Sequential(*layers()), "~/model")

    run = make_run(1, project=Path("~/project"))
    run.accelerator.load_state()

    assert (tmp_path / "home" / "project" / "checkpoints" / "checkpoint_0").is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["home"]

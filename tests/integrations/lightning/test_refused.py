"""What a Trainer would go on from in silence, and wrongly."""

from __future__ import annotations

import dataclasses
from enum import Enum
from pathlib import Path
from typing import Any

import lightning.pytorch
import pytest
import torch

from tensorkeep.errors import StateDictMismatchError, StateError, UnsupportedError
from tensorkeep.integrations.lightning import (
    AsyncTensorkeepCheckpointIO,
    RandomState,
    TensorkeepCheckpointIO,
    load_from_checkpoint,
)
from tests.support.integrations.lightning.runs import LIBRARIES, Regressor, checkpoints, fit, module_class

lr = torch.optim.lr_scheduler


class Backwards(Regressor):  # type: ignore[misc, valid-type]
    """The same parameters in another order: a fused step would write past the end of their moments."""

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(list(self.parameters())[::-1], fused=True)
        return {"optimizer": optimizer, "lr_scheduler": lr.OneCycleLR(optimizer, 0.05, total_steps=5000)}


class WithAdam(Regressor):  # type: ignore[misc, valid-type]
    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters())


class WithSteps(Regressor):  # type: ignore[misc, valid-type]
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters())
        return {"optimizer": optimizer, "lr_scheduler": lr.StepLR(optimizer, 2)}


class WithTwo(Regressor):  # type: ignore[misc, valid-type]
    def configure_optimizers(self) -> Any:
        self.automatic_optimization = False
        return [torch.optim.AdamW(self.layers[:1].parameters()), torch.optim.AdamW(self.layers[1:].parameters())], []


def with_random_state(directory: Path, library: Any = lightning.pytorch, **options: Any) -> Any:
    return fit(
        directory,
        library=library,
        callbacks=[checkpoints(directory, library, save_last=True), RandomState()],
        **options,
    )


@pytest.mark.parametrize(
    ("module", "match"),
    [
        (Backwards, r"optimizer_states\.0 does not fit AdamW.*of shape"),
        (WithAdam, "optimizer_states.0 does not fit Adam"),
        (WithSteps, "lr_schedulers.0 is the state of another kind of scheduler than StepLR"),
        (WithTwo, "optimizer_states has other objects"),
    ],
)
def test_optimizers_and_schedules_of_another_run(tmp_path: Path, module: Any, match: str) -> None:
    with_random_state(tmp_path)
    other = module()

    with pytest.raises(StateDictMismatchError, match=match) as caught:
        with_random_state(tmp_path, max_epochs=3, module=other, ckpt_path="last")

    assert caught.value.path == str(tmp_path / "last.ckpt")
    assert "Neither optimizers nor schedules were changed" in str(caught.value)
    assert all(not optimizer.state for optimizer in other.trainer.optimizers)


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)
def test_the_same_run_goes_on(tmp_path: Path, library: Any) -> None:
    with_random_state(tmp_path, library, module=module_class(library)())

    run = with_random_state(tmp_path, library, module=module_class(library)(), max_epochs=3, ckpt_path="last")

    assert run.current_epoch == 3


class Phase(Enum):
    WARMUP = 1


@dataclasses.dataclass
class Best:
    loss: float = 0.5


class Notes(lightning.pytorch.Callback):
    """A callback whose state has an object in it."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.loaded: Any = None

    def state_dict(self) -> dict[str, Any]:
        return {"inner": [self.value]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loaded = state["inner"][0]


def with_notes(directory: Path, notes: Notes, **options: Any) -> Any:
    return fit(directory, callbacks=[checkpoints(directory, save_last=True), notes], **options)


@pytest.mark.parametrize("plugin", [TensorkeepCheckpointIO, AsyncTensorkeepCheckpointIO])
@pytest.mark.parametrize("value", [Phase.WARMUP, Best()])
def test_objects_in_the_state_of_a_callback(tmp_path: Path, plugin: Any, value: Any) -> None:
    name = type(value).__name__
    with_notes(tmp_path, Notes(value), plugin=plugin(), max_epochs=1)

    with pytest.raises(UnsupportedError, match=rf"callbacks\.Notes\.inner\.0` was saved .*classes=\[{name}\]"):
        with_notes(tmp_path, Notes(value), plugin=plugin(), ckpt_path="last")
    assert load_from_checkpoint(Regressor, tmp_path / "last.ckpt", plugin=plugin()).hparams.width == 8

    notes = Notes(value)
    with_notes(tmp_path, notes, plugin=plugin(classes=[Phase, Best]), ckpt_path="last")
    assert notes.loaded == value
    assert type(notes.loaded) is type(value)


def test_objects_among_hyper_parameters_need_no_class(tmp_path: Path) -> None:
    fit(tmp_path, module=Regressor(phase=Phase.WARMUP), max_epochs=1)

    assert fit(tmp_path, module=Regressor(phase=Phase.WARMUP), ckpt_path="last").current_epoch == 2


def test_a_class_among_hyper_parameters(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"pass it to the plugin: TensorkeepCheckpointIO\(classes="):
        fit(tmp_path, module=Regressor(kind=torch.optim.Adam), max_epochs=1)


def test_a_module_in_the_place_of_its_class(tmp_path: Path) -> None:
    fit(tmp_path, max_epochs=1)

    with pytest.raises(UnsupportedError, match=r"load_from_checkpoint\(Regressor, path\)"):
        load_from_checkpoint(Regressor(), tmp_path / "last.ckpt")


@pytest.mark.parametrize("plugin", [TensorkeepCheckpointIO, AsyncTensorkeepCheckpointIO])
def test_verify_is_one_of_two(plugin: Any) -> None:
    with pytest.raises(UnsupportedError, match="verify is invalid"):
        plugin(verify="require")

"""The plugins in a Trainer: what they save and keep, and how a run goes on from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import tensorkeep
from tensorkeep.errors import MissingDependencyError
from tensorkeep.integrations.lightning import AsyncTensorkeepCheckpointIO, RandomState, TensorkeepCheckpointIO
from tensorkeep.torch import load_into
from tests.support.integrations.lightning.runs import LIBRARIES, Regressor, checkpoints, exactly, files, fit, loader

libraries = pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES.keys())
plugins = pytest.mark.parametrize("plugin", [TensorkeepCheckpointIO, AsyncTensorkeepCheckpointIO])


@libraries
@plugins
def test_all_that_lightning_saves_comes_back(tmp_path: Path, library: ModuleType, plugin: Any) -> None:
    stopping = library.callbacks.EarlyStopping("valid_loss", patience=9)
    made = fit(
        tmp_path,
        plugin(),
        library=library,
        callbacks=[checkpoints(tmp_path, library, monitor="valid_loss", save_top_k=2), stopping],
    )
    expected = made._checkpoint_connector.dump_checkpoint()
    made.save_checkpoint(tmp_path / "all.ckpt")

    loaded = made.strategy.checkpoint_io.load_checkpoint(tmp_path / "all.ckpt")

    assert exactly(loaded, expected)
    assert {"state_dict", "optimizer_states", "lr_schedulers", "callbacks", "loops", "hyper_parameters"} <= set(
        loaded
    )
    assert tensorkeep.verify(tmp_path / "all.ckpt").is_whole
    assert isinstance(tensorkeep.open(tmp_path / "all.ckpt"), tensorkeep.TensorFile), "no pickle was written"


@libraries
def test_it_is_a_plugin_of_the_library_that_is_used(library: ModuleType) -> None:
    made = TensorkeepCheckpointIO()

    assert isinstance(made, library.plugins.CheckpointIO)
    assert issubclass(AsyncTensorkeepCheckpointIO, library.plugins.CheckpointIO)
    assert isinstance(RandomState(), library.Callback)
    assert library.Trainer(plugins=made, accelerator="cpu", logger=False).strategy.checkpoint_io is made


def test_the_other_copy_is_not_imported_and_may_be_later() -> None:
    program = """
import sys
import pytorch_lightning
import tensorkeep.integrations.lightning as ours
plugin, callback = ours.AsyncTensorkeepCheckpointIO(), ours.RandomState()
assert "lightning" not in sys.modules, "the other copy was imported"
import lightning.pytorch
for library in (pytorch_lightning, lightning.pytorch):
    options = {"accelerator": "cpu", "logger": False, "callbacks": [callback]}
    trainer = library.Trainer(plugins=[ours.AsyncTensorkeepCheckpointIO()], **options)
    assert type(trainer.strategy.checkpoint_io) is ours.AsyncTensorkeepCheckpointIO
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert not done.returncode, done.stderr


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning.fabric", "lightning_fabric"):
        monkeypatch.delitem(sys.modules, name)
    for name in ("lightning", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(MissingDependencyError, match="pip install lightning"):
        TensorkeepCheckpointIO()


@libraries
@plugins
@pytest.mark.parametrize("ckpt_path", ["best", "last", "a path"])
def test_training_goes_on(tmp_path: Path, library: ModuleType, plugin: Any, ckpt_path: str) -> None:
    first = fit(tmp_path, plugin(), library=library)
    path = first.checkpoint_callback.best_model_path if ckpt_path == "a path" else ckpt_path
    keeping = first.checkpoint_callback if ckpt_path == "best" else checkpoints(tmp_path, library, save_last=True)

    second = fit(
        tmp_path,
        plugin(),
        library=library,
        callbacks=[keeping],
        ckpt_path=path,
        max_epochs=4,
        enable_progress_bar=False,
    )

    assert first.global_step == 12
    assert second.global_step == 24
    assert len(second.lightning_module.losses) == 12, "only two epochs were trained"
    assert second.optimizers[0].state_dict()["state"][0]["step"] == 24
    assert second.lr_scheduler_configs[0].scheduler.last_epoch == 24


@plugins
def test_the_best_checkpoint_is_tested(tmp_path: Path, plugin: Any) -> None:
    made = fit(tmp_path, plugin(), callbacks=[checkpoints(tmp_path, monitor="valid_loss", mode="max")], max_epochs=3)
    best = made.checkpoint_callback.best_model_score.item()
    with torch.no_grad():
        for parameter in made.lightning_module.parameters():
            parameter.zero_()

    found = made.test(made.lightning_module, loader(shuffle=False), ckpt_path="best", verbose=False)

    assert found[0]["valid_loss"] == pytest.approx(best, abs=1e-7)


@plugins
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"save_top_k": 1}, ["epoch=2-step=18.ckpt"]),
        ({"save_top_k": -1}, ["epoch=0-step=6.ckpt", "epoch=1-step=12.ckpt", "epoch=2-step=18.ckpt"]),
        ({"save_top_k": 2, "monitor": "step", "mode": "max"}, ["epoch=1-step=12.ckpt", "epoch=2-step=18.ckpt"]),
        ({"save_top_k": 1, "save_last": True}, ["epoch=2-step=18.ckpt", "last.ckpt"]),
        ({"save_top_k": 0, "save_last": True}, ["last.ckpt"]),
        ({"save_top_k": 1, "every_n_train_steps": 7}, ["epoch=2-step=14.ckpt"]),
        ({"save_top_k": 1, "filename": "always"}, ["always.ckpt"]),
        ({"save_weights_only": True}, ["epoch=2-step=18.ckpt"]),
    ],
)
def test_what_is_kept(tmp_path: Path, plugin: Any, options: dict[str, Any], expected: list[str]) -> None:
    fit(tmp_path, plugin(), callbacks=[checkpoints(tmp_path, **options)], max_epochs=3)

    assert files(tmp_path) == expected
    assert all(tensorkeep.verify(path).is_whole for path in tmp_path.iterdir())


@plugins
def test_an_exception_saves(tmp_path: Path, plugin: Any) -> None:
    class Failing(Regressor):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if self.global_step == 8:
                raise ArithmeticError("overflow")
            return super().training_step(batch, batch_idx)

    keeping = checkpoints(tmp_path, save_on_exception=True, save_top_k=-1)
    with pytest.raises(ArithmeticError, match="overflow"):
        fit(tmp_path, plugin(), module=Failing(), callbacks=[keeping])

    assert files(tmp_path) == ["epoch=0-step=6.ckpt", "epoch=1-step=8.ckpt"]
    assert TensorkeepCheckpointIO().load_checkpoint(tmp_path / "epoch=1-step=8.ckpt")["global_step"] == 8


def test_weights_alone(tmp_path: Path) -> None:
    made = fit(tmp_path)
    made.save_checkpoint(tmp_path / "weights.ckpt", weights_only=True)

    loaded = TensorkeepCheckpointIO().load_checkpoint(tmp_path / "weights.ckpt", weights_only=True)

    assert "optimizer_states" not in loaded
    assert exactly(loaded["state_dict"], made.lightning_module.state_dict())


def test_weights_load_into_a_module(tmp_path: Path) -> None:
    made = fit(tmp_path)
    model = Regressor()

    with tensorkeep.open(tmp_path / "last.ckpt") as checkpoint:
        report = load_into(model, checkpoint.select("state_dict.*"), strip_prefix="state_dict.")

    assert not report.missing
    assert not report.unexpected
    assert exactly(model.state_dict(), made.lightning_module.state_dict())

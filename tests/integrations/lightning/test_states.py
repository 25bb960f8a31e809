"""States of all kinds of modules, callbacks, precisions and of Fabric, saved and loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch
import pytest
import torch
from lightning.fabric import Fabric

from tensorkeep.integrations.lightning import AsyncTensorkeepCheckpointIO, RandomState, TensorkeepCheckpointIO
from tests.support.integrations.lightning.runs import Regressor, checkpoints, exactly, files, fit, loader, trainer

plugins = pytest.mark.parametrize("plugin", [TensorkeepCheckpointIO, AsyncTensorkeepCheckpointIO])


class Everything(lightning.pytorch.LightningModule):
    """Two optimizers, schedulers of all kinds, tied weights, extra state, and data of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.one = torch.nn.Linear(4, 4)
        self.two = torch.nn.Linear(4, 4)
        self.two.weight = self.one.weight
        self.register_buffer("counter", torch.zeros((), dtype=torch.int64))
        self.narrow = torch.nn.Parameter(torch.randn(3).to(torch.bfloat16))
        self.notes: dict[str, Any] = {}

    def get_extra_state(self) -> Any:
        return {"words": ("a", 1), "tensor": torch.arange(3)}

    def set_extra_state(self, state: Any) -> None:
        self.notes["extra"] = state

    def training_step(self, batch: Any, batch_idx: int) -> None:
        for optimizer in self.optimizers():
            optimizer.zero_grad()
            self.manual_backward(self.two(self.one(batch[0])).square().mean() + self.narrow.sum().square())
            optimizer.step()
        for scheduler in self.lr_schedulers():
            scheduler.step(*([torch.tensor(1.0)] if hasattr(scheduler, "patience") else []))
        self.counter += 1

    def configure_optimizers(self) -> Any:
        one = torch.optim.SGD(self.one.parameters(), 0.1, momentum=0.9, nesterov=True)
        two = torch.optim.Adam([*self.two.parameters(), self.narrow], torch.tensor(0.1), amsgrad=True)
        lr = torch.optim.lr_scheduler
        made = [
            lr.MultiStepLR(one, [2, 4]),
            lr.LambdaLR(one, lambda epoch: 0.9**epoch),
            lr.ReduceLROnPlateau(two),
            lr.SequentialLR(two, [lr.ConstantLR(two), lr.ExponentialLR(two, 0.9)], milestones=[2]),
            lr.CyclicLR(one, 0.1, 0.2),
            lr.CosineAnnealingWarmRestarts(one, 5),
        ]
        return [one, two], made

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["notes"] = {
            "path": Path("a/b"),
            "set": {1, 2},
            "numbers": [1.5, float("inf")],
            "weight": self.one.weight,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.notes |= checkpoint["notes"]


class Data(lightning.pytorch.LightningDataModule):
    def __init__(self, batch: int = 3) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.seen = 0

    def train_dataloader(self) -> Any:
        return loader()

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen, "order": torch.arange(5)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


@plugins
def test_modules_of_all_kinds(tmp_path: Path, plugin: Any) -> None:
    torch.manual_seed(0)
    module, data = Everything(), Data()
    made = trainer(tmp_path, plugins=[plugin()], callbacks=[checkpoints(tmp_path)], max_epochs=1)
    made.fit(module, data)
    data.seen = 7
    made.save_checkpoint(tmp_path / "all.ckpt")
    expected = made._checkpoint_connector.dump_checkpoint()

    loaded = made.strategy.checkpoint_io.load_checkpoint(tmp_path / "all.ckpt")
    other, other_data = Everything(), Data()
    again = trainer(tmp_path, plugins=[plugin()], callbacks=[checkpoints(tmp_path)], max_epochs=1)
    again.fit(other, other_data, ckpt_path=tmp_path / "all.ckpt")

    loaded["notes"]["weight"], expected["notes"]["weight"] = (
        loaded["notes"]["weight"].detach(),
        expected["notes"]["weight"].detach(),
    )
    assert exactly(loaded, expected)
    assert loaded["state_dict"]["one.weight"].data_ptr() == loaded["state_dict"]["two.weight"].data_ptr(), "tied"
    assert exactly({**other.state_dict()}, {**module.state_dict()})
    assert exactly([each.state_dict() for each in again.optimizers], [each.state_dict() for each in made.optimizers])
    assert other.notes["path"] == Path("a/b")
    assert other.notes["set"] == {1, 2}
    assert other.notes["extra"]["words"] == ("a", 1)
    assert other_data.seen == 7


def test_callbacks_of_the_library(tmp_path: Path) -> None:
    names = (
        "StochasticWeightAveraging",
        "Timer",
        "EarlyStopping",
        "EMAWeightAveraging",
        "GradientAccumulationScheduler",
    )
    arguments: dict[str, Any] = {
        "StochasticWeightAveraging": {"swa_lrs": 0.1, "swa_epoch_start": 1},
        "EarlyStopping": {"monitor": "valid_loss"},
        "GradientAccumulationScheduler": {"scheduling": {0: 2}},
    }
    for name in names:
        made = getattr(lightning.pytorch.callbacks, name)(**arguments.get(name, {}))
        keeping = checkpoints(tmp_path / name)
        run = fit(tmp_path, callbacks=[made, keeping], max_epochs=3)
        again = getattr(lightning.pytorch.callbacks, name)(**arguments.get(name, {}))
        path = Path(keeping.best_model_path)
        rest = fit(tmp_path, callbacks=[again, checkpoints(tmp_path / name)], max_epochs=4, ckpt_path=path)

        assert run.global_step, name
        assert rest.current_epoch == (5 if name == "StochasticWeightAveraging" else 4), name
        state = TensorkeepCheckpointIO().load_checkpoint(path)["callbacks"]
        assert len(state) == (2 if made.state_dict() else 1), name


def test_the_state_of_a_precision_plugin(tmp_path: Path) -> None:
    def precise() -> Any:
        return lightning.pytorch.plugins.MixedPrecision("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu", 512.0))

    made = trainer(tmp_path, plugins=[TensorkeepCheckpointIO(), precise()], max_epochs=1, enable_checkpointing=False)
    made.fit(Regressor(), loader())
    made.precision_plugin.scaler.update(128.0)
    made.save_checkpoint(tmp_path / "scaled.ckpt")
    again = trainer(tmp_path, plugins=[TensorkeepCheckpointIO(), precise()], max_epochs=1, enable_checkpointing=False)
    again.fit(Regressor(), loader(), ckpt_path=tmp_path / "scaled.ckpt")

    assert again.precision_plugin.scaler.get_scale() == 128.0


@plugins
def test_fabric(tmp_path: Path, plugin: Any) -> None:
    fabric = Fabric(accelerator="cpu", devices=1, plugins=[plugin()])
    model, optimizer = fabric.setup(module := torch.nn.Linear(3, 2), torch.optim.AdamW(module.parameters()))
    fabric.backward(model(torch.ones(1, 3)).sum())
    optimizer.step()
    fabric.save(tmp_path / "state.ckpt", {"model": model, "optimizer": optimizer, "step": 3})
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        model.weight.zero_()

    rest = {"model": model, "optimizer": optimizer, "step": 0}
    fabric.load(tmp_path / "state.ckpt", rest)

    assert rest["step"] == 3
    assert exactly(dict(model.state_dict()), expected)


@plugins
@pytest.mark.parametrize("finder", ["LearningRateFinder", "BatchSizeFinder"])
def test_what_saves_and_loads_while_it_trains(tmp_path: Path, plugin: Any, finder: str) -> None:
    class Tunable(Regressor):
        batch = 2

        def train_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(loader().dataset, self.batch)

        val_dataloader = train_dataloader

    made = {
        "LearningRateFinder": lambda: lightning.pytorch.callbacks.LearningRateFinder(num_training_steps=5),
        "BatchSizeFinder": lambda: lightning.pytorch.callbacks.BatchSizeFinder(
            max_trials=2, steps_per_trial=2, batch_arg_name="batch"
        ),
    }[finder]()
    module = Tunable()
    run = trainer(tmp_path, plugins=[plugin()], callbacks=[made, RandomState(), checkpoints(tmp_path)], max_epochs=1)
    run.fit(module)

    assert files(tmp_path) == [f"epoch=0-step={run.global_step}.ckpt"], "the temporary one is gone"

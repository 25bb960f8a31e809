"""`load_from_checkpoint`: what Lightning's own method makes, without running anything of the file."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import lightning.pytorch
import pytest
import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from omegaconf import OmegaConf

import tensorkeep
from tensorkeep.errors import UnsafeError, UnsupportedError
from tensorkeep.integrations.lightning import (
    AsyncTensorkeepCheckpointIO,
    TensorkeepCheckpointIO,
    load_from_checkpoint,
)
from tests.support.integrations.lightning.runs import LIBRARIES, exactly, loader, trainer

libraries = pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES.keys())
plugins = pytest.mark.parametrize("plugin", [TensorkeepCheckpointIO, None], ids=["ours", "a pickle"])


class Phase(Enum):
    WARMUP = "warmup"


@dataclass
class Settings:
    phase: Phase


class Base(lightning.pytorch.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.weight.square().sum()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)


class ByName(Base):
    def __init__(self, width: int, lr: float = 0.1, *, names: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.save_hyperparameters()


class ByKeywords(Base):
    def __init__(self, width: int, **others: Any) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.others = others


class ByArguments(Base):
    def __init__(self, args: Any, extra: int = 1) -> None:
        super().__init__()
        self.save_hyperparameters(args)
        self.args, self.extra = args, extra


class Ignoring(Base):
    def __init__(self, net: torch.nn.Module, width: int) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["net"])
        self.net = net


class Late(Base):
    """Makes its layers late, and takes its time to load."""

    def __init__(self, width: int = 2) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer: Any = None
        self.seen: Any = None

    def configure_model(self) -> None:
        if self.layer is None:
            self.layer = torch.nn.Linear(self.hparams.width, 1)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["mine"] = {"seen": Path("x")}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.seen = checkpoint["mine"]["seen"]


class Data(lightning.pytorch.LightningDataModule):
    def __init__(self, batch: int = 1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.seen = 0

    def train_dataloader(self) -> Any:
        return loader()

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


def saved(module: Any, path: Path, plugin: Any, data: Any = None, library: ModuleType = lightning.pytorch) -> Path:
    """Train for a moment and save."""
    made = trainer(path, library, plugins=[plugin()] if plugin else None, max_steps=1, enable_checkpointing=False)
    made.fit(module, *([loader()] if data is None else []), datamodule=data)
    made.save_checkpoint(path / "x.ckpt")
    return path / "x.ckpt"


@plugins
@pytest.mark.parametrize(
    "make",
    [
        lambda: ByName(3, names=("a", "b")),
        lambda: ByKeywords(3, lr=0.5, deep={"a": [1]}),
        lambda: ByArguments(Namespace(width=3, inner={"a": 1})),
        lambda: ByArguments({"width": 3}, extra=1),
        lambda: ByArguments(OmegaConf.create({"width": 3, "twice": "${width}"})),
        lambda: Late(5),
    ],
    ids=["by name", "by keywords", "a namespace", "a dict", "a configuration", "late"],
)
def test_the_module_is_made_as_lightning_makes_it(tmp_path: Path, plugin: Any, make: Any) -> None:
    module = make()
    path = saved(module, tmp_path, plugin)
    module.trainer.strategy.checkpoint_io = TorchCheckpointIO()
    module.trainer.save_checkpoint(tmp_path / "pickle.ckpt")
    theirs = type(module).load_from_checkpoint(tmp_path / "pickle.ckpt", weights_only=False)

    made = load_from_checkpoint(type(module), path)

    assert type(made) is type(module)
    assert exactly(dict(made.state_dict()), dict(module.state_dict()))
    assert made.hparams == theirs.hparams == module.hparams
    assert type(made.hparams) is type(theirs.hparams)
    for name in {"others", "args", "extra"} & vars(made).keys():
        assert type(getattr(made, name)) is type(getattr(theirs, name)), name
        assert getattr(made, name) == getattr(theirs, name), name
    if isinstance(made, Late):
        assert made.seen == (Path("x") if plugin else "x"), "a path in a pickle comes as a text"


@libraries
@plugins
def test_both_copies(tmp_path: Path, library: ModuleType, plugin: Any) -> None:
    class Module(library.LightningModule):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.layer = torch.nn.Linear(width, 1)

        training_step, configure_optimizers = Base.training_step, Base.configure_optimizers
        weight = property(lambda self: self.layer.weight)

    module = Module(4)

    made = load_from_checkpoint(Module, saved(module, tmp_path, plugin, library=library))

    assert made.hparams == {"width": 4}
    assert exactly(dict(made.state_dict()), dict(module.state_dict()))


@plugins
def test_arguments_that_are_given_come_first(tmp_path: Path, plugin: Any) -> None:
    path = saved(ByName(3), tmp_path, plugin)

    made = load_from_checkpoint(ByName, path, lr=0.7, names=("new",))

    assert made.hparams == {"width": 3, "lr": 0.7, "names": ("new",)}
    net = torch.nn.Linear(2, 2)
    path = saved(Ignoring(net, 4), tmp_path, plugin)
    assert load_from_checkpoint(Ignoring, path, net=net).hparams == {"width": 4}
    with pytest.raises(TypeError, match="net"):
        load_from_checkpoint(Ignoring, path)


@plugins
def test_strict(tmp_path: Path, plugin: Any) -> None:
    path = saved(ByName(3), tmp_path, plugin)

    class More(ByName):
        def __init__(self, width: int) -> None:
            super().__init__(width)
            self.more = torch.nn.Parameter(torch.ones(1))

    with pytest.raises(RuntimeError, match="more"):
        load_from_checkpoint(More, path)
    with pytest.warns(UserWarning, match="only the module has more"):
        made = load_from_checkpoint(More, path, strict=False)
    assert made.more.item() == 1

    class Lenient(More):
        strict_loading = False

    with pytest.warns(UserWarning, match="only the module has more"):
        load_from_checkpoint(Lenient, path)


@plugins
def test_a_data_module(tmp_path: Path, plugin: Any) -> None:
    data = Data(batch=7)
    data.seen = 5
    path = saved(ByName(3), tmp_path, plugin, data)

    made = load_from_checkpoint(Data, path)

    assert (made.hparams.batch, made.seen) == (7, 5)
    assert load_from_checkpoint(Data, path, batch=8).hparams.batch == 8


@plugins
def test_objects_need_their_classes(tmp_path: Path, plugin: Any) -> None:
    path = saved(ByKeywords(3, settings=Settings(Phase.WARMUP)), tmp_path, plugin)

    with pytest.raises(UnsupportedError, match=r"hyper_parameters\S*settings.*Settings"):
        load_from_checkpoint(ByKeywords, path)

    made = load_from_checkpoint(ByKeywords, path, plugin=TensorkeepCheckpointIO(classes=[Phase, Settings]))
    assert made.others == {"settings": Settings(Phase.WARMUP)}
    if plugin:
        rest = load_from_checkpoint(ByKeywords, path, settings=None)
        assert rest.others == {"settings": None}, "what is given takes the place of what cannot be made"


def test_what_is_dropped_must_be_given(tmp_path: Path) -> None:
    path = saved(ByArguments({"phase": Phase.WARMUP, "width": 3}), tmp_path, None)

    made = load_from_checkpoint(ByArguments, path, plugin=TensorkeepCheckpointIO(drop_unknown=True))

    assert made.args == {"width": 3}


def test_an_async_plugin_serves_too(tmp_path: Path) -> None:
    plugin = AsyncTensorkeepCheckpointIO()
    path = saved(ByName(3), tmp_path, lambda: plugin)

    assert load_from_checkpoint(ByName, path, plugin=plugin).hparams.width == 3


def test_what_lightning_cli_noted(tmp_path: Path) -> None:
    """Plain arguments are taken; the function that is named to make the module is not called."""
    hparams = {"width": 9, "_instantiator": "lightning.pytorch.cli.instantiate_module", "_class_path": "x.ByKeywords"}
    checkpoint = {"pytorch-lightning_version": "2.6.6", "state_dict": {"weight": torch.ones(3)}}
    TensorkeepCheckpointIO().save_checkpoint(checkpoint | {"hyper_parameters": hparams}, tmp_path / "x.ckpt")

    made = load_from_checkpoint(ByKeywords, tmp_path / "x.ckpt")

    assert made.hparams == {"width": 9}
    assert made.others == {}


class EncodedObject(Base):
    def __init__(self, net: torch.nn.Module, width: int = 1) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["net"])
        self.net = net


def test_classes_that_a_file_names_are_not_imported(tmp_path: Path) -> None:
    hparams = {
        "_instantiator": "lightning.pytorch.cli.instantiate_module",
        "net": {"class_path": "torch.nn.Linear", "init_args": {"in_features": 1, "out_features": 2}},
    }
    state = {"weight": torch.ones(3), "net.weight": torch.ones(2, 1), "net.bias": torch.ones(2)}
    checkpoint = {"pytorch-lightning_version": "2.6.6", "state_dict": state, "hyper_parameters": hparams}
    TensorkeepCheckpointIO().save_checkpoint(checkpoint, tmp_path / "x.ckpt")

    with pytest.raises(UnsupportedError, match="create it yourself, and pass net="):
        load_from_checkpoint(EncodedObject, tmp_path / "x.ckpt")
    made = load_from_checkpoint(EncodedObject, tmp_path / "x.ckpt", net=torch.nn.Linear(1, 2))
    assert made.net.weight.eq(1).all()


@plugins
def test_arguments_that_reach_nobody_are_refused(tmp_path: Path, plugin: Any) -> None:
    path = saved(ByName(3), tmp_path, plugin)

    with pytest.raises(TypeError, match="ByName has no parameter 'widht'"):
        load_from_checkpoint(ByName, path, widht=4)
    with pytest.raises(UnsupportedError, match=r"hparams\.yaml"):
        load_from_checkpoint(ByName, path, hparams_file="hparams.yaml")
    assert load_from_checkpoint(ByName, path, weights_only=False).hparams.width == 3
    assert load_from_checkpoint(ByKeywords, path, new=4).others == {"lr": 0.1, "names": (), "new": 4}
    path = saved(ByArguments(Namespace(width=3)), tmp_path, plugin)
    assert load_from_checkpoint(ByArguments, path, width=5).args["width"] == 5, "one of the saved object"


@pytest.mark.parametrize("more", [{}, {"_instantiator": "x.y"}])
def test_a_value_in_very_many_places_is_looked_at_once(tmp_path: Path, more: dict[str, Any]) -> None:
    value: Any = [1]
    for _ in range(60):
        value = [value, value]
    state = {"weight": torch.ones(3)}
    checkpoint = {
        "pytorch-lightning_version": "2.6.6",
        "state_dict": state,
        "hyper_parameters": {"others": value, **more},
    }
    TensorkeepCheckpointIO().save_checkpoint(checkpoint, tmp_path / "x.ckpt")

    assert load_from_checkpoint(ByKeywords, tmp_path / "x.ckpt", width=1).others["others"][0] is not None


def test_what_is_no_checkpoint_of_a_trainer(tmp_path: Path) -> None:
    tensorkeep.save({"weight": torch.ones(3)}, tmp_path / "x.ckpt")

    with pytest.raises(UnsupportedError, match="load_into"):
        load_from_checkpoint(ByName, tmp_path / "x.ckpt")
    with pytest.raises(UnsupportedError, match="subclass of LightningModule"):
        load_from_checkpoint(torch.nn.Linear, tmp_path / "x.ckpt")


def test_a_payload_is_not_run(tmp_path: Path) -> None:
    class Payload:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "it was run",)

    torch.save({"pytorch-lightning_version": "2.6.6", "state_dict": {}, "x": Payload()}, tmp_path / "x.ckpt")

    with pytest.raises((UnsafeError, UnsupportedError)):
        load_from_checkpoint(ByName, tmp_path / "x.ckpt")
    assert not (tmp_path / "it was run").exists()


@pytest.mark.parametrize("map_location", ["cpu", None])
def test_the_module_does_not_need_the_file(tmp_path: Path, map_location: Any) -> None:
    path = saved(ByName(3), tmp_path, TensorkeepCheckpointIO)

    made = load_from_checkpoint(ByName, path, map_location)

    path.write_bytes(b"")  # a mapped file would end the process here
    assert made.weight.device.type == "cpu"
    assert made.weight.isfinite().all()

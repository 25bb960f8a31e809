"""What Lightning's own plugin has written, read without running it, so that a run can be switched in its middle."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import lightning.fabric.utilities.data
import lightning.pytorch
import numpy as np
import pytest
import pytorch_lightning
import torch
from omegaconf import DictConfig, OmegaConf

import tensorkeep
from tensorkeep.errors import FormatError, IntegrityError, LimitError, UnsafeError, UnsupportedError
from tensorkeep.integrations.lightning import AsyncTensorkeepCheckpointIO, RandomState, TensorkeepCheckpointIO
from tests.integrations.lightning.test_values import Config, Optimizer, configs, nodes
from tests.integrations.lightning.test_values import Phase as ConfigPhase
from tests.support.integrations.lightning.runs import LIBRARIES, checkpoints, exactly, loader, module_class, trainer

AttributeDict = lightning.fabric.utilities.data.AttributeDict
libraries = pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES.keys())


class Phase(Enum):
    WARMUP = "warmup"
    MAIN = 2


@dataclass
class Settings:
    width: int
    phase: Phase
    weight: Any = None


class Pair(NamedTuple):
    one: int
    two: Settings


def pickled(value: Any, path: Path, **options: Any) -> Any:
    """Save hyper-parameters as Lightning does, and load them by the plugin."""
    torch.save({"hyper_parameters": {"value": value}, "state_dict": {}}, path / "old.ckpt")
    return TensorkeepCheckpointIO(**options).load_checkpoint(path / "old.ckpt")["hyper_parameters"]["value"]


def fit(directory: Path, plugin: Any, library: ModuleType, max_epochs: int, **options: Any) -> Any:
    torch.manual_seed(0)
    np.random.seed(0)
    made = trainer(
        directory,
        library,
        plugins=[plugin] if plugin else None,
        callbacks=[checkpoints(directory, library, save_last=True), RandomState()],
        max_epochs=max_epochs,
    )
    made.fit(module_class(library)(), loader(), loader(shuffle=False), **options)
    return made


@libraries
@pytest.mark.parametrize("plugin", [TensorkeepCheckpointIO, AsyncTensorkeepCheckpointIO])
def test_a_run_is_switched_in_its_middle(tmp_path: Path, library: ModuleType, plugin: Any) -> None:
    whole = fit(tmp_path / "whole", None, library, 4)
    fit(tmp_path / "run", None, library, 2)
    assert tensorkeep.scan(tmp_path / "run" / "last.ckpt").files[0].n_pickles == 1

    rest = fit(tmp_path / "run", plugin(), library, 4, ckpt_path="last")

    assert rest.lightning_module.losses == whole.lightning_module.losses[-12:]
    assert exactly(dict(rest.lightning_module.state_dict()), dict(whole.lightning_module.state_dict()))
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["epoch=3-step=24.ckpt", "last.ckpt"]
    for path in (tmp_path / "run").iterdir():
        assert isinstance(tensorkeep.open(path), tensorkeep.TensorFile)


@libraries
def test_all_of_it_comes_back(tmp_path: Path, library: ModuleType) -> None:
    made = fit(tmp_path, None, library, 1)
    expected = made._checkpoint_connector.dump_checkpoint()

    loaded = TensorkeepCheckpointIO().load_checkpoint(tmp_path / "last.ckpt")

    for part in ("state_dict", "optimizer_states", "lr_schedulers", "hyper_parameters", "hparams_name"):
        assert exactly(loaded[part], expected[part]), part
    assert loaded["callbacks"].keys() == expected["callbacks"].keys()
    assert all(tensor.data_ptr() % 64 == 0 for tensor in loaded["optimizer_states"][0]["state"][0].values())


@pytest.mark.parametrize(
    "value",
    [Namespace(a=1, inner=Namespace(b=[2])), SimpleNamespace(a=1), AttributeDict(a=1, inner=AttributeDict(b=2))],
    ids=lambda value: type(value).__name__,
)
def test_objects_with_attributes(tmp_path: Path, value: Any) -> None:
    made = pickled([value, value], tmp_path)

    assert type(made[0]) is type(value)
    assert made[0] == value
    assert type(made[0].inner if hasattr(value, "inner") else made[0]) is type(value)
    assert made[0] is made[1]


def test_the_first_versions_had_them_as_hyper_parameters(tmp_path: Path) -> None:
    torch.save({"hyper_parameters": AttributeDict(lr=0.1, args=3)}, tmp_path / "old.ckpt")

    loaded = TensorkeepCheckpointIO().load_checkpoint(tmp_path / "old.ckpt")["hyper_parameters"]

    assert loaded == {"lr": 0.1, "args": 3}


def test_two_kinds_in_one_file_cannot_be_told_apart(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"several kinds.*argparse\.Namespace.*AttributeDict"):
        pickled([Namespace(a=1), AttributeDict(a=1)], tmp_path)


@pytest.mark.parametrize("name", sorted(configs().keys() - {"objects"}))
def test_configurations(tmp_path: Path, name: str) -> None:
    made = pickled(configs()[name], tmp_path, classes=[ConfigPhase, Optimizer, Config])

    expected = nodes(configs()[name])
    if name == "plain":
        expected = nodes(OmegaConf.merge(configs()[name], {"path": "p"}))  # a path in a pickle comes as a text
        assert str(made) == str(OmegaConf.merge(configs()[name], {"path": "p"}))
        return
    assert str(nodes(made)) == str(expected)


def test_a_part_of_a_configuration_keeps_the_whole(tmp_path: Path) -> None:
    whole = OmegaConf.create({"data": {"size": 3}, "models": [{"width": "${data.size}"}]})

    made = pickled({"part": whole.models[0], "whole": whole}, tmp_path)

    assert made["part"].width == 3
    made["whole"].data.size = 4
    assert made["part"].width == 4


def test_the_class_of_hyper_parameters(tmp_path: Path) -> None:
    torch.save({"hparams_type": DictConfig, "x": {"y": dict}}, tmp_path / "old.ckpt")

    loaded = TensorkeepCheckpointIO().load_checkpoint(tmp_path / "old.ckpt")

    assert loaded["hparams_type"] is DictConfig
    assert loaded["x"]["y"] is dict


@pytest.mark.parametrize("package", ["pytorch_lightning", "lightning.pytorch"])
def test_the_first_versions_named_callbacks_by_their_classes(tmp_path: Path, package: str) -> None:
    library = {"pytorch_lightning": pytorch_lightning, "lightning.pytorch": lightning.pytorch}[package]
    torch.save({"callbacks": {library.callbacks.EarlyStopping: {"wait_count": 3}}}, tmp_path / "old.ckpt")

    loaded = TensorkeepCheckpointIO().load_checkpoint(tmp_path / "old.ckpt")

    (cls,) = loaded["callbacks"]
    assert cls in {lightning.pytorch.callbacks.EarlyStopping, pytorch_lightning.callbacks.EarlyStopping}
    assert loaded["callbacks"][cls] == {"wait_count": 3}


@pytest.mark.parametrize(
    "value",
    [
        Phase.WARMUP,
        Settings(3, Phase.MAIN),
        Settings(3, Phase.MAIN, weight=torch.arange(3.0)),
        Pair(1, Settings(2, Phase.WARMUP)),
        {"deep": [(Phase.MAIN, Namespace(x=Phase.WARMUP))]},
    ],
    ids=["enum", "dataclass", "with a tensor", "namedtuple", "deep"],
)
def test_objects_of_classes_that_are_passed(tmp_path: Path, value: Any) -> None:
    made = pickled(value, tmp_path, classes=[Phase, Settings, Pair])

    assert type(made) is type(value)
    if isinstance(value, Settings):
        assert exactly(vars(made), vars(value))
    else:
        assert made == value


def test_a_member_that_is_no_more_is_an_error(tmp_path: Path) -> None:
    class Fewer(Enum):
        OTHER = 1

    with pytest.raises(FormatError, match="not a member of"):
        pickled(Phase.MAIN, tmp_path, classes={f"{Phase.__module__}:Phase": Fewer})


def test_a_class_that_has_changed_is_an_error(tmp_path: Path) -> None:
    @dataclass
    class Other:
        height: int

    with pytest.raises(FormatError, match="not the one that was saved"):
        pickled(
            Settings(3, Phase.MAIN),
            tmp_path,
            classes={f"{Settings.__module__}:Settings": Other, f"{Phase.__module__}:Phase": Phase},
        )


def test_all_that_is_unknown_is_named(tmp_path: Path) -> None:
    value = {"phase": Phase.WARMUP, "list": [1, torch.nn.GELU()], "function": torch.relu, "set": {Phase.MAIN}}

    with pytest.raises(UnsupportedError, match="Nothing was run") as caught:
        pickled(value, tmp_path)

    for expected in (
        "hyper_parameters.value.phase",
        f"{Phase.__module__}.Phase",
        "hyper_parameters.value.list.1",
        "torch.nn.modules.activation.GELU",
        "hyper_parameters.value.function",
        "hyper_parameters.value.set",
        "old.ckpt",
    ):
        assert expected in str(caught.value)


def test_what_is_unknown_is_left_out_if_the_user_says_so(tmp_path: Path) -> None:
    value = {
        "phase": Phase.WARMUP,
        "list": [1, torch.nn.GELU(), 2],
        "tuple": (Phase.MAIN,),
        "lr": 0.1,
        "set": {1, Phase.MAIN},
    }

    made = pickled(value, tmp_path, drop_unknown=True)

    assert made == {"list": [1, None, 2], "tuple": (None,), "lr": 0.1, "set": {1}}


class Payload:
    def __init__(self, call: Callable[..., Any], *args: Any) -> None:
        self._call = call, args

    def __reduce__(self) -> Any:
        return self._call


@pytest.mark.parametrize("drop_unknown", [False, True])
@pytest.mark.parametrize("call", [os.system, os.mkdir, eval])
def test_nothing_is_run(tmp_path: Path, call: Any, drop_unknown: bool) -> None:
    mark = tmp_path / "it was run"
    argument = {os.system: f"touch '{mark}'", os.mkdir: str(mark), eval: f"__import__('os').mkdir({str(mark)!r})"}[
        call
    ]
    torch.save({"hyper_parameters": {"x": Payload(call, argument)}}, tmp_path / "evil.ckpt")

    with pytest.raises((UnsafeError, UnsupportedError)):
        TensorkeepCheckpointIO(drop_unknown=drop_unknown).load_checkpoint(tmp_path / "evil.ckpt")
    assert not mark.exists()


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    weight = torch.arange(1000.0)
    torch.save({"state_dict": {"w": weight}}, tmp_path / "old.ckpt")
    content = bytearray((tmp_path / "old.ckpt").read_bytes())
    content[content.index(weight.numpy().tobytes()) + 100] ^= 4
    (tmp_path / "old.ckpt").write_bytes(content)

    with pytest.raises(IntegrityError, match=r"`state_dict\.w`"):
        TensorkeepCheckpointIO().load_checkpoint(tmp_path / "old.ckpt")


def test_a_directory_of_pickles_is_refused(tmp_path: Path) -> None:
    for name in ("a.pt", "b.pt"):
        torch.save({"w": torch.ones(2)}, tmp_path / name)

    with pytest.raises(UnsupportedError, match="one file"):
        TensorkeepCheckpointIO().load_checkpoint(tmp_path)


@pytest.mark.parametrize("kind", ["unfolds", "its own parent", "holds itself", "malformed"])
def test_hostile_configurations(tmp_path: Path, kind: str) -> None:
    config = OmegaConf.create([[1], [2]])
    parts = vars(config)
    if kind == "unfolds":
        for _ in range(60):
            inner, config = config, OmegaConf.create([])
            vars(config)["_content"] = [inner, inner]
    elif kind == "its own parent":
        parts["_parent"] = config
    elif kind == "holds itself":
        parts["_content"].append(config)
    else:
        leaf = vars(parts["_content"][0])["_content"][0]
        vars(vars(leaf)["_metadata"]).clear()

    with pytest.raises((LimitError, UnsupportedError)):
        pickled(config, tmp_path)

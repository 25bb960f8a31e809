"""States with objects in them; and what stands in the directory under other names, or only in part."""

from __future__ import annotations

import ast
import re
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import skorch.callbacks
import torch
from sklearn.base import clone
from skorch.callbacks import Callback

from tensorkeep.errors import SourceMissingError, UnsupportedError
from tensorkeep.integrations.skorch import Checkpoint, LoadInitState, TrainEndCheckpoint, load_params, save_params
from tests.support.integrations.skorch.nets import X, Y, make_net, parts_of, same


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory, which also is that of the user."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


class Phase(Enum):
    WARMUP = 1


class Best(NamedTuple):
    loss: float


class Notes(Callback):
    """A callback whose state has objects in it."""

    def __init__(self) -> None:
        self.loaded_: Any = None

    def state_dict(self) -> dict[str, Any]:
        return {"phase": Phase.WARMUP, "best": [Best(0.5)]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loaded_ = state


def going_on(checkpoint: Any, notes: Any = None, **options: Any) -> Any:
    load = LoadInitState(checkpoint, **options)
    return make_net([checkpoint, load, *([] if notes is None else [("notes", notes)])])


@pytest.mark.parametrize("files", [{}, {"f_checkpoint": "all.safetensors"}])
@pytest.mark.parametrize("kind", [Checkpoint, TrainEndCheckpoint])
def test_objects_in_the_state_of_a_callback(kind: Any, files: dict[str, Any]) -> None:
    checkpoint = kind(**files, **({"monitor": None} if kind is Checkpoint else {}))
    going_on(checkpoint, Notes()).fit(X, Y)
    without = going_on(checkpoint, Notes()).initialize()
    before = parts_of(without)

    with pytest.raises(
        UnsupportedError, match=r"callback notes .* was saved as an object.*Pass its class in classes="
    ):
        without.partial_fit(X, Y)
    assert same(parts_of(without), before)

    notes = Notes()
    net = going_on(checkpoint, notes, classes=[Phase, Best]).fit(X, Y)
    assert len(net.history) == 4
    assert notes.loaded_ == {"phase": Phase.WARMUP, "best": [Best(0.5)]}
    assert type(notes.loaded_["best"][0]) is Best


def test_classes_of_the_checkpoint_itself() -> None:
    checkpoint = Checkpoint(monitor=None, classes=[Phase, Best])
    notes = Notes()
    going_on(checkpoint, Notes()).fit(X, Y)

    net = clone(going_on(checkpoint, notes)).fit(X, Y)

    assert len(net.history) == 4
    assert dict(net.callbacks_)["notes"].loaded_["phase"] is Phase.WARMUP


def test_classes_for_load_params() -> None:
    checkpoint = Checkpoint(monitor=None)
    net = make_net([checkpoint, ("notes", Notes())]).fit(X, Y)
    other = make_net([("notes", Notes())])

    with pytest.raises(UnsupportedError, match="classes="):
        load_params(other, checkpoint=checkpoint, training=True)
    load_params(other, checkpoint=checkpoint, training=True, classes=[Phase, Best])

    assert same(parts_of(other), parts_of(net))


class WithPhase(torch.nn.Module):
    """A module whose state has an object in it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(6, 2)
        self.phase: Any = Phase.WARMUP

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.layer(rows).softmax(-1)

    def get_extra_state(self) -> Any:
        return {"phase": self.phase}

    def set_extra_state(self, state: Any) -> None:
        self.phase = state["phase"]


def test_classes_of_modules() -> None:
    best = Checkpoint(monitor=None, load_best=True, classes=[Phase])
    net = make_net([best], module=WithPhase).fit(X, Y)
    assert net.module_.phase is Phase.WARMUP

    save_params(net, f_params="alone.safetensors")
    other = make_net(module=WithPhase).initialize()
    other.module_.phase = None
    with pytest.raises(UnsupportedError, match="classes="):
        load_params(other, f_params="alone.safetensors")
    load_params(other, f_params="alone.safetensors", classes=[Phase])
    assert other.module_.phase is Phase.WARMUP


@pytest.mark.parametrize(
    ("first", "second", "there"),
    [
        ({}, {"f_checkpoint": "all.safetensors"}, "params.safetensors"),
        ({"f_checkpoint": "all.safetensors"}, {}, "all.safetensors"),
        ({}, {"fn_prefix": "p", "f_params": "arams.st"}, "params.safetensors"),
    ],
)
def test_what_was_saved_under_other_names(first: dict[str, Any], second: dict[str, Any], there: str) -> None:
    going_on(Checkpoint(dirname="run", monitor=None, **first)).fit(X, Y)
    other = Checkpoint(dirname="run", monitor=None, **second)

    with pytest.raises(SourceMissingError, match=rf"nothing was saved there yet.*found .*run.{there}"):
        load_params(make_net(), checkpoint=other)
    with pytest.warns(UserWarning, match=rf"training starts from the beginning, .*run.{there}.*arguments it had"):
        going_on(other).fit(X, Y)


def test_an_empty_directory_warns_of_nothing(recwarn: pytest.WarningsRecorder) -> None:
    Path("run").mkdir()
    Path("run/params.safetensors.txt").write_text("")
    Path("run/other.safetensors").write_text("")

    going_on(Checkpoint(dirname="run", monitor=None)).fit(X, Y)

    assert not [each for each in recwarn if "training begins anew" in str(each.message)]


def test_a_run_without_an_optimizer_can_be_taken_over() -> None:
    """The message says how, and that works: skorch can save no optimizer as safetensors."""
    old = skorch.callbacks.Checkpoint(dirname="run", monitor=None, f_optimizer=None, f_pickle=None)
    before = make_net([old]).fit(X, Y)
    checkpoint = Checkpoint(dirname="run", monitor=None)
    with pytest.raises(SourceMissingError, match="once with the others, without LoadInitState") as caught:
        going_on(checkpoint).fit(X, Y)
    call = re.search(r"load_params\(net\.initialize\(\), (.*?)\), then net\.partial_fit", str(caught.value))
    assert call is not None
    given = {name: ast.literal_eval(path) for name, path in (pair.split("=") for pair in call[1].split(", "))}

    net = make_net([checkpoint])
    load_params(net.initialize(), **given)
    assert same(net.module_.state_dict(), before.module_.state_dict())
    net.partial_fit(X, Y)

    assert len(going_on(checkpoint).fit(X, Y).history) == 6


def test_all_that_is_missing_is_named() -> None:
    checkpoint = Checkpoint(dirname="run", monitor=None)
    going_on(checkpoint).fit(X, Y)
    Path("run/optimizer.safetensors").unlink()
    Path("run/criterion.safetensors").unlink()

    with pytest.raises(SourceMissingError, match="f_criterion=None, f_optimizer=None"):
        going_on(checkpoint).fit(X, Y)


@pytest.mark.parametrize("kind", [Checkpoint, TrainEndCheckpoint])
def test_the_directory_of_the_user(folder: Path, kind: Any) -> None:
    checkpoint = kind(dirname="~/run", **({"monitor": None} if kind is Checkpoint else {}))
    net = clone(going_on(checkpoint)).fit(X, Y)
    save_params(net, f_params="~/run/alone.safetensors")

    assert (folder / "home" / "run" / f"{checkpoint.fn_prefix}history.json").is_file()
    assert (folder / "home" / "run" / "alone.safetensors").is_file()
    assert not (folder / "~").exists()
    load_params(net, f_params="~/run/alone.safetensors")
    if kind is Checkpoint:
        assert Path(checkpoint.f_history_) == folder / "home" / "run" / "history.json"

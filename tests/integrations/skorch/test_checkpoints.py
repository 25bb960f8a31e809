"""The callbacks that save: every argument of skorch's, and what is done better."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import skorch.callbacks
import torch
from skorch.callbacks import EarlyStopping
from skorch.exceptions import SkorchException

import tensorkeep
from tensorkeep.errors import SourceMissingError, UnsupportedError
from tensorkeep.integrations.skorch import Checkpoint, LoadInitState, TrainEndCheckpoint, load_params, save_params
from tests.support.integrations.skorch.nets import (
    CrosswiseLayers,
    TiedLayers,
    X,
    Y,
    make_net,
    make_two,
    parts_of,
    same,
)

DEFAULTS = {
    "params.safetensors",
    "optimizer.safetensors",
    "criterion.safetensors",
    "history.json",
    "training.safetensors",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def events(net: Any, name: str = "event_cp") -> list[bool]:
    return net.history[:, name]


def worsening(net: Any) -> bool:
    """Save in the first epoch only."""
    return len(net.history) == 1


def test_the_defaults_save_each_part_of_the_best_epoch(folder: Path) -> None:
    checkpoint = Checkpoint()
    net = make_net([checkpoint], epochs=6, lr=0.5).fit(X, Y)

    assert names_in(folder) == DEFAULTS
    assert events(net) == net.history[:, "valid_loss_best"]
    assert not all(events(net))
    loaded = make_net()
    load_params(loaded, checkpoint=checkpoint)
    best = max(place for place, saved in enumerate(events(net)) if saved)
    assert len(loaded.history) == best + 1
    assert loaded.history[-1, "valid_loss"] == net.history[best, "valid_loss"]


def test_the_monitor_may_be_none_a_function_or_a_column(folder: Path) -> None:
    assert events(make_net([Checkpoint(monitor=None)], epochs=3).fit(X, Y)) == [True] * 3
    assert events(make_net([Checkpoint(monitor=worsening)], epochs=3).fit(X, Y)) == [True, False, False]
    net = make_net([Checkpoint(monitor="train_loss_best")], epochs=3).fit(X, Y)
    assert events(net) == net.history[:, "train_loss_best"]
    with pytest.raises(SkorchException, match="validation data"):
        make_net([Checkpoint()], train_split=None).fit(X, Y)
    with pytest.warns(UserWarning, match="valid_loss_best"):
        make_net([Checkpoint(monitor="valid_loss")], epochs=1).fit(X, Y)


def test_prefix_directory_and_names_of_ones_own(folder: Path) -> None:
    names = {
        "f_params": "w.pt",
        "f_optimizer": "o.bin",
        "f_criterion": None,
        "f_history": "log",
        "f_training": "rest",
    }
    net = make_net([Checkpoint(dirname="a/b", fn_prefix="x-", monitor=None, **names)]).fit(X, Y)

    assert names_in(folder) == {"a/b/x-w.pt", "a/b/x-o.bin", "a/b/x-log", "a/b/x-rest"}
    loaded = make_net()
    load_params(loaded, checkpoint=Checkpoint(dirname="a/b", fn_prefix="x-", **names))
    assert same(parts_of(loaded), parts_of(net))


def test_fields_in_names_are_those_of_the_epoch(folder: Path) -> None:
    name = "{last_epoch[epoch]}-{last_batch[valid_batch_size]}-{net.batch_size}-{{}}.safetensors"
    checkpoint = Checkpoint(f_params=name, monitor=worsening, dirname="d")
    net = make_net([checkpoint], epochs=3).fit(X, Y)

    assert names_in(folder) - {f"d/{name}" for name in DEFAULTS} == {"d/1-24-32-{}.safetensors"}
    assert checkpoint.get_formatted_files(net)["f_params"] == "d/1-24-32-{}.safetensors"
    loaded = make_net()
    load_params(loaded, checkpoint=checkpoint)
    assert len(loaded.history) == 1


def test_paths_and_file_objects(folder: Path) -> None:
    memory = io.BytesIO()
    checkpoint = Checkpoint(
        monitor=None, f_params=folder / "p", f_optimizer=memory, f_history=folder / "h", f_training=None
    )
    net = make_net([checkpoint], epochs=1).fit(X, Y)

    assert names_in(folder) == {"p", "h", "criterion.safetensors"}
    assert checkpoint.f_history_ == folder / "h"
    loaded = make_net()
    load_params(loaded, checkpoint=checkpoint)
    assert same(parts_of(loaded), parts_of(net))
    with pytest.raises(SkorchException, match="dirname can only be used"):
        Checkpoint(dirname="d", f_params=memory)


def test_what_is_none_is_not_saved(folder: Path) -> None:
    make_net([Checkpoint(monitor=None, f_optimizer=None, f_training=None, f_history=None)]).fit(X, Y)

    assert names_in(folder) == {"params.safetensors", "criterion.safetensors"}


def test_one_file_has_everything(folder: Path) -> None:
    checkpoint = Checkpoint(monitor=None, f_checkpoint="all.safetensors")
    net = make_net([checkpoint]).fit(X, Y)

    assert names_in(folder) == {"all.safetensors"}
    state = tensorkeep.load("all.safetensors")
    assert list(state) == ["module", "criterion", "optimizer", "history", "training"]
    assert tensorkeep.verify("all.safetensors").is_whole
    loaded = make_net()
    load_params(loaded, checkpoint=checkpoint)
    assert same(parts_of(loaded), parts_of(net))


def test_files_that_are_named_are_saved_beside_the_one(folder: Path) -> None:
    checkpoint = Checkpoint(monitor=None, f_checkpoint="all_{last_epoch[epoch]}", f_params="params.safetensors")
    make_net([checkpoint]).fit(X, Y)

    assert names_in(folder) == {"all_1", "all_2", "params.safetensors"}


def test_custom_parts_are_saved_unasked_under_their_names(folder: Path) -> None:
    checkpoint = Checkpoint(monitor=None, f_slow_optimizer="slow", f_teacher=None)
    make_two([checkpoint]).fit(X, Y)
    assert names_in(folder) == DEFAULTS | {"slow"}

    checkpoint = Checkpoint(monitor=None, dirname="all", fn_prefix="x_")
    net = make_two([checkpoint]).fit(X, Y)
    names = DEFAULTS | {"teacher.safetensors", "slow_optimizer.safetensors"}
    assert {name for name in names_in(folder) if name.startswith("all/")} == {f"all/x_{name}" for name in names}
    loaded = make_two()
    load_params(loaded, checkpoint=checkpoint)
    assert same(parts_of(loaded), parts_of(net))


@pytest.mark.parametrize("module", [TiedLayers, CrosswiseLayers])
def test_weights_that_skorch_does_not_save_are_there(folder: Path, module: Any) -> None:
    checkpoint = Checkpoint(monitor=None)
    net = make_net([checkpoint], module=module).fit(X, Y)

    loaded = make_net(module=module)
    load_params(loaded, checkpoint=checkpoint)

    assert same(parts_of(loaded), parts_of(net))


def test_a_criterion_without_a_state_is_left_out_unless_it_is_named(folder: Path) -> None:
    class Loss:
        def __call__(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(scores, labels)

    net = make_net([Checkpoint(monitor=None)], criterion=Loss).fit(X, Y)
    assert names_in(folder) == DEFAULTS - {"criterion.safetensors"}
    load_params(loaded := make_net(criterion=Loss), checkpoint=Checkpoint())
    assert same(loaded.module_.state_dict(), net.module_.state_dict())

    with pytest.raises(tensorkeep.StateError, match="no part 'criterion'"):
        make_net([Checkpoint(monitor=None, f_criterion="c")], criterion=Loss).fit(X, Y)


def test_the_event_has_the_name_that_is_given(folder: Path) -> None:
    net = make_net([Checkpoint(event_name="kept", monitor=worsening), Checkpoint(event_name=None, fn_prefix="x")])
    net.fit(X, Y)

    assert events(net, "kept") == [True, False]
    assert "event_cp" not in net.history[-1]


def test_the_sink_is_told(folder: Path) -> None:
    said: list[str] = []
    make_net([Checkpoint(sink=said.append, monitor=None, load_best=True)]).fit(X, Y)
    assert [text.split(" in ")[0] for text in said] == ["A checkpoint was triggered"] * 2

    make_net([Checkpoint(sink=said.append, load_best=True), TrainEndCheckpoint(sink=said.append)]).fit(X, Y)
    assert said[-2:] == ["Loading best checkpoint after training.", "Final checkpoint triggered"]


@pytest.mark.parametrize("files", [{}, {"f_checkpoint": "all"}, {"f_params": "p{last_epoch[epoch]}"}])
def test_the_best_is_loaded_at_the_end(folder: Path, files: dict[str, str]) -> None:
    def fit(*, load_best: bool) -> Any:
        checkpoint = Checkpoint(load_best=load_best, **files)
        stop = EarlyStopping(patience=4, sink=lambda _: None)
        return make_net([checkpoint, stop], epochs=30, lr=0.5).fit(X, Y)

    last = fit(load_best=False)
    after_last = torch.get_rng_state()
    best = fit(load_best=True)

    assert torch.equal(torch.get_rng_state(), after_last), "chance goes on, whatever was loaded"
    assert len(best.history) < len(last.history) < 30
    assert best.history[-1, "valid_loss"] == min(last.history[:, "valid_loss"])
    assert best.history[-1, "event_cp"]
    load_params(loaded := make_net(), checkpoint=Checkpoint(**files), f_history=None)
    assert same(parts_of(loaded), parts_of(best))


def test_where_nothing_was_ever_saved_the_best_cannot_be_loaded(folder: Path) -> None:
    with pytest.raises(SourceMissingError, match="nothing was saved there yet"):
        make_net([Checkpoint(monitor=lambda _: False, load_best=True)]).fit(X, Y)


def test_the_end_of_training_is_saved(folder: Path) -> None:
    checkpoint = TrainEndCheckpoint(dirname="end")
    net = make_net([checkpoint], epochs=3).fit(X, Y)
    assert names_in(folder) == {f"end/train_end_{name}" for name in DEFAULTS}

    loaded = make_net()
    load_params(loaded, checkpoint=checkpoint)
    assert same(parts_of(loaded), parts_of(net))

    make_net([TrainEndCheckpoint(f_checkpoint="all", fn_prefix="")]).fit(X, Y)
    assert "all" in names_in(folder)


def test_stopping_early_is_not_remembered_where_it_had_ended_the_training(folder: Path) -> None:
    def run() -> Any:
        checkpoint = TrainEndCheckpoint()
        stop = EarlyStopping(patience=2, threshold=0.9, sink=lambda _: None)
        return make_net([stop, LoadInitState(checkpoint), checkpoint], epochs=20).fit(X, Y)

    lengths = [len(run().history) for _ in range(3)]

    assert lengths[0] < lengths[1] < lengths[2] < 20, "each training ends by itself again"


def test_a_pickle_is_refused_wherever_it_is_asked_for(folder: Path) -> None:
    for make in (Checkpoint, TrainEndCheckpoint):
        with pytest.raises(UnsupportedError, match=r"runs code from the file.*f_checkpoint=.*load_params"):
            make(f_pickle="net.pkl")
        callback = make()
        net = make_net([("saving", callback)]).set_params(callbacks__saving__f_pickle="net.pkl")
        with pytest.raises(UnsupportedError, match="f_pickle"):
            net.fit(X, Y)
    assert names_in(folder) == set()


@pytest.mark.parametrize("make", [Checkpoint, TrainEndCheckpoint])
def test_arguments_that_are_none(make: Any) -> None:
    with pytest.raises(TypeError, match="did you mean 'f_params'"):
        make(params="p")
    with pytest.raises(TypeError, match="f_params and f_module"):
        make(f_module="p").initialize()
    assert make(f_params=None, f_module="p", use_safetensors=False).get_params()["f_module"] == "p"


def test_arguments_are_those_of_skorch() -> None:
    for ours in (Checkpoint, TrainEndCheckpoint, LoadInitState):
        theirs = getattr(skorch.callbacks, ours.__name__)
        assert issubclass(ours, theirs)
        arguments = list(inspect.signature(theirs).parameters)
        positional = [name for name in arguments if name != "kwargs"]
        assert list(inspect.signature(ours).parameters)[: len(positional)] == positional


def test_callbacks_are_copied_pickled_and_set(folder: Path) -> None:
    callback = Checkpoint(f_params="p.pt", dirname="d", f_teacher="t")
    for copied in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
        assert copied.get_params() == callback.get_params()
        assert vars(copied) == vars(callback)
    net = make_net([("saving", callback), ("going_on", LoadInitState(callback))])
    net.set_params(callbacks__saving__dirname="e", callbacks__saving__monitor=None, callbacks__saving__f_teacher=None)
    net.fit(X, Y)
    assert names_in(folder) == {f"e/{name}" for name in DEFAULTS - {"params.safetensors"} | {"p.pt"}}


def test_a_directory_that_cannot_be_made_is_an_error(folder: Path) -> None:
    folder.joinpath("file").touch()

    with pytest.raises(tensorkeep.errors.TransportError, match=r"could not create the directory.*file/sub"):
        make_net([Checkpoint(dirname="file/sub")]).fit(X, Y)


def test_what_is_said_of_files_is_what_is_written(folder: Path) -> None:
    for arguments in ({"dirname": "a"}, {"f_checkpoint": "all"}, {"f_criterion": None, "fn_prefix": "x"}):
        checkpoint = Checkpoint(monitor=None, **arguments)
        net = make_net([checkpoint]).fit(X, Y)

        files = {name: path for name, path in checkpoint.get_formatted_files(net).items() if path is not None}

        assert set(files.values()) <= names_in(folder)
        loaded = make_net().initialize()
        load_params(loaded, **files)
        assert same(parts_of(loaded), parts_of(net))


def test_the_history_is_the_one_that_skorch_writes(folder: Path) -> None:
    net = make_net([Checkpoint(monitor=None)]).fit(X, Y)
    net.history.to_file("theirs.json")

    assert folder.joinpath("history.json").read_bytes() == folder.joinpath("theirs.json").read_bytes()


def test_a_name_under_which_others_expect_a_pickle(tmp_path: Path) -> None:
    net = make_net().initialize()

    with pytest.warns(UserWarning, match=r"optimizer\.pkl gets a safetensors file.*name it optimizer\.safetensors"):
        save_params(net, f_optimizer=tmp_path / "optimizer.pkl")
    with pytest.warns(UserWarning, match=r"history\.pt gets JSON.*name it history\.json"):
        save_params(net, f_history=tmp_path / "history.pt")
    with warnings.catch_warnings(action="error"):
        save_params(net, f_params=tmp_path / "params.safetensors", f_optimizer=tmp_path / "optimizer")

    load_params(net, f_optimizer=tmp_path / "optimizer.pkl")

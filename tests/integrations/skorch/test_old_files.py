"""What skorch itself wrote is read: its files, in the middle of a run too, and nets that were pickled whole."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import skorch.callbacks
import torch
from skorch import NeuralNetClassifier
from skorch.toy import MLPModule
from torch import nn

from tensorkeep.errors import FormatError, SourceMissingError, StateDictMismatchError, UnsafeError
from tensorkeep.integrations.skorch import Checkpoint, LoadInitState, TrainEndCheckpoint, load_params
from tests.support.integrations.skorch.nets import TiedLayers, X, Y, make_net, make_two, parts_of, same

OLD = {"params.pt", "optimizer.pt", "criterion.pt", "history.json"}
NEW = {"params.safetensors", "optimizer.safetensors", "criterion.safetensors", "training.safetensors"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pickled(net: Any) -> Path:
    Path("net.pkl").write_bytes(pickle.dumps(net))
    return Path("net.pkl")


def test_files_of_save_params_are_read(folder: Path) -> None:
    net = make_net().fit(X, Y)
    names = {"f_params": "p.pt", "f_optimizer": "o.pt", "f_criterion": "c.pt", "f_history": "h.json"}
    net.save_params(**names)

    loaded = make_net().initialize()
    load_params(loaded, **names)
    assert same(parts_of(loaded), parts_of(net))

    with open("p.pt", "rb") as file:
        load_params(other := make_net().initialize(), f_params=file)
    assert same(parts_of(other)["module"], parts_of(net)["module"])


def test_safetensors_of_skorch_are_read(folder: Path) -> None:
    net = make_net().fit(X, Y)
    net.save_params(f_params="p.safetensors", f_criterion="c", use_safetensors=True)

    loaded = make_net().initialize()
    load_params(loaded, f_params="p.safetensors", f_criterion="c")

    assert same(parts_of(loaded)["module"], parts_of(net)["module"])


@pytest.mark.parametrize("files", [{}, {"f_checkpoint": "all.safetensors"}])
@pytest.mark.parametrize("prefix", ["", "x_"])
def test_a_run_goes_on_where_skorch_left_it(folder: Path, prefix: str, files: dict[str, str]) -> None:
    arguments = {"dirname": "run", "fn_prefix": prefix, "monitor": None}
    old = make_net([skorch.callbacks.Checkpoint(**arguments)], epochs=3).fit(X, Y)
    assert {path.name for path in Path("run").iterdir()} == {prefix + name for name in OLD}

    def go_on(epochs: int) -> Any:
        checkpoint = Checkpoint(**arguments, **files)
        return make_net([checkpoint, LoadInitState(checkpoint)], epochs=epochs).fit(X, Y)

    assert same(parts_of(go_on(0)), parts_of(old))
    new = go_on(2)
    assert len(new.history) == 5
    written = set(files.values()) or NEW
    assert {path.name for path in Path("run").iterdir()} == {prefix + name for name in OLD | written}
    assert len(go_on(2).history) == 7, "the new files count from here"


def test_the_end_of_a_training_with_skorch_is_gone_on_with(folder: Path) -> None:
    old = make_net([skorch.callbacks.TrainEndCheckpoint()], epochs=3).fit(X, Y)
    checkpoint = TrainEndCheckpoint()

    new = make_net([checkpoint, LoadInitState(checkpoint)], epochs=0).fit(X, Y)

    assert same(parts_of(new), parts_of(old))


def test_names_that_were_given_are_the_same_files(folder: Path) -> None:
    names = {"f_params": "w-{last_epoch[epoch]}.pt", "f_history": "log.json"}
    old = make_net([skorch.callbacks.Checkpoint(monitor=None, **names)]).fit(X, Y)
    checkpoint = Checkpoint(monitor=None, **names)

    loaded = make_net()
    load_params(loaded, checkpoint=checkpoint)
    assert same(parts_of(loaded), parts_of(old))

    make_net([checkpoint, LoadInitState(checkpoint)], epochs=1).fit(X, Y)
    assert Path("w-3.pt").read_bytes()[8:9] == b"{", "a safetensors file by now"
    assert make_net([LoadInitState(checkpoint)], epochs=0).fit(X, Y).history[-1, "epoch"] == 3


def test_all_names_may_be_given(folder: Path) -> None:
    names = {"f_params": "p", "f_optimizer": "o", "f_criterion": "c", "f_history": "h"}
    old = make_net([skorch.callbacks.Checkpoint(monitor=None, **names)]).fit(X, Y)
    checkpoint = Checkpoint(monitor=None, f_training="t", **names)

    net = make_net([checkpoint, LoadInitState(checkpoint)], epochs=0).fit(X, Y)
    assert same(parts_of(net), parts_of(old)), "skorch writes no file of the training"

    make_net([checkpoint, LoadInitState(checkpoint)], epochs=1).fit(X, Y)
    Path("t").unlink()
    with pytest.raises(SourceMissingError, match="missing: training"):
        make_net([checkpoint, LoadInitState(checkpoint)], epochs=0).fit(X, Y)


@pytest.mark.parametrize("missing", sorted(OLD))
def test_a_missing_part_of_an_old_set_is_an_error(folder: Path, missing: str) -> None:
    make_net([skorch.callbacks.Checkpoint(monitor=None)]).fit(X, Y)
    Path(missing).unlink()

    with pytest.raises(SourceMissingError, match=f"missing: .*{missing}"):
        make_net([LoadInitState(Checkpoint())]).fit(X, Y)


def test_old_files_never_take_the_place_of_a_new_one(folder: Path) -> None:
    make_net([skorch.callbacks.Checkpoint(monitor=None)]).fit(X, Y)
    make_net([Checkpoint(monitor=None)]).fit(X, Y)
    Path("params.safetensors").unlink()

    with pytest.raises(SourceMissingError, match=r"params\.safetensors"):
        make_net([LoadInitState(Checkpoint())]).fit(X, Y)


@pytest.mark.parametrize("how", ["f_pickle", "f_checkpoint", "file object"])
def test_a_net_that_was_pickled_gives_its_states(folder: Path, how: str) -> None:
    net = make_net(epochs=3).fit(X, Y)
    path = pickled(net)

    loaded = make_net()
    load_params(loaded, **({"f_pickle": io.BytesIO(path.read_bytes())} if how == "file object" else {how: path}))

    assert same(parts_of(loaded), parts_of(net))
    assert type(loaded.history) is type(net.history)
    assert loaded.classes_.tolist() == [0, 1]


def test_parts_of_a_net_that_was_pickled(folder: Path) -> None:
    net = make_net(epochs=3).fit(X, Y)
    path = pickled(net)
    loaded = make_net().initialize()
    before = parts_of(loaded)

    load_params(loaded, f_params=path)

    assert same(parts_of(loaded), before | {"module": parts_of(net)["module"]})
    load_params(loaded, f_optimizer=path, f_history=path)
    assert same(parts_of(loaded), parts_of(net))


def test_a_pickled_net_that_goes_on_is_the_one_that_was_pickled(folder: Path) -> None:
    net = make_net(module__dropout=0.0).fit(X, Y)
    load_params(loaded := make_net(module__dropout=0.0), f_pickle=pickled(net))

    for each in (net, loaded):
        each.partial_fit(X, Y)

    assert same(parts_of(loaded), parts_of(net))


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop])
def test_pickles_of_every_optimizer_and_of_custom_parts(folder: Path, optimizer: Any) -> None:
    net = make_net(optimizer=optimizer, optimizer__weight_decay=0.1).fit(X, Y)
    load_params(loaded := make_net(optimizer=optimizer), f_pickle=pickled(net))
    assert same(parts_of(loaded), parts_of(net))

    two = make_two().fit(X, Y)
    load_params(loaded := make_two(), f_pickle=pickled(two))
    assert same(parts_of(loaded), parts_of(two))


def test_arguments_of_a_pickled_net_that_are_modules_are_none_of_its_parts(folder: Path) -> None:
    options = {"module": MLPModule, "module__input_units": 6, "module__output_nonlin": nn.Softmax(-1)}
    net = make_net(**options).fit(X, Y)
    load_params(loaded := make_net(**options), f_pickle=pickled(net))
    assert same(parts_of(loaded), parts_of(net))

    net = make_net(module=WithHidden()).fit(X, Y)
    load_params(loaded := make_net(module=WithHidden()), f_pickle=pickled(net))
    assert same(parts_of(loaded), parts_of(net))


def test_tied_and_hidden_tensors_of_a_pickled_module(folder: Path) -> None:
    net = make_net(module=TiedLayers).fit(X, Y)
    load_params(loaded := make_net(module=TiedLayers), f_pickle=pickled(net))
    assert same(parts_of(loaded), parts_of(net))
    assert loaded.module_.outer.weight is loaded.module_.inner.weight

    with_hidden = make_net(module=WithHidden).fit(X, Y)
    load_params(loaded := make_net(module=WithHidden), f_pickle=pickled(with_hidden))
    assert same(parts_of(loaded), parts_of(with_hidden))


class WithHidden(nn.Module):
    """A module with a buffer that is not in its state dict, a tensor that is no buffer, and an empty place."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 2, bias=False)
        self.register_buffer("hidden", torch.ones(3), persistent=False)
        self.register_parameter("empty", None)
        self.plain = torch.ones(2)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.last(values).softmax(-1)


def test_a_pickled_net_with_a_payload_is_refused(folder: Path) -> None:
    net = make_net().fit(X, Y)
    net.payload_ = Payload()
    path = pickled(net)

    with pytest.raises(UnsafeError, match=r"posix\.system"):
        load_params(make_net(), f_pickle=path)

    assert not folder.joinpath("ran").exists()


class Payload:
    def __reduce__(self) -> Any:
        return os.system, ("touch ran",)


def test_a_pickled_net_with_a_payload_within_is_refused(folder: Path) -> None:
    """skorch keeps modules in a pickle within the pickle, as bytes that nobody looks into before they are needed."""
    net = make_net().fit(X, Y)
    net.module_.payload = Payload()
    path = pickled(net)

    with pytest.raises(UnsafeError, match=r"posix\.system"):
        load_params(make_net(), f_pickle=path)

    assert not folder.joinpath("ran").exists()


def test_a_net_that_torch_saved_whole_gives_its_states(folder: Path) -> None:
    net = make_net().fit(X, Y)
    torch.save(net, "net.pt")

    load_params(loaded := make_net(), f_pickle="net.pt")

    assert same(parts_of(loaded), parts_of(net))


def test_skorch_itself_says_that_it_cannot_read_the_optimizer(folder: Path) -> None:
    checkpoint = Checkpoint(monitor=None)
    make_net([checkpoint]).fit(X, Y)

    with pytest.raises(Exception, match="param_groups"):
        make_net().load_params(checkpoint=checkpoint)


def test_files_from_a_gpu_are_read_without_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = make_net().fit(X, Y)
    names = {"f_params": "p.pt", "f_optimizer": "o.pt"}
    with monkeypatch.context() as elsewhere:  # torch notes of each storage which device it was on
        registry = [
            (0, lambda storage: "cuda:7", lambda storage, location: None),
            *torch.serialization._package_registry,
        ]
        elsewhere.setattr(torch.serialization, "_package_registry", registry)
        net.save_params(**names)
        pickled(net)
    with pytest.raises(RuntimeError, match="CUDA"):
        torch.load("p.pt")

    for arguments in (names, {"f_pickle": "net.pkl"}):
        load_params(loaded := make_net().initialize(), **arguments)
        assert same(parts_of(loaded)["optimizer"], parts_of(net)["optimizer"])
        assert loaded.module_.last.weight.device.type == "cpu"


def test_strange_pickles_are_errors(folder: Path) -> None:
    loaded = make_net().initialize()
    Path("list.pkl").write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(StateDictMismatchError, match=r"not hold all parts.*list\.pkl"):
        load_params(loaded, f_pickle="list.pkl")
    net = make_net()
    with pytest.raises(StateDictMismatchError, match=r"other parts.*found nothing|other parts"):
        load_params(loaded, f_pickle=pickled(net))
    data = pickle.dumps(make_net().fit(X, Y))
    Path("cut.pkl").write_bytes(data[: len(data) // 2])
    with pytest.raises(FormatError, match=r"cut\.pkl"):
        load_params(loaded, f_pickle="cut.pkl")


def test_a_pickled_module_that_holds_itself_ends(folder: Path) -> None:
    net = make_net().fit(X, Y)
    net.module_._modules["self"] = net.module_
    path = pickled(net)

    with pytest.raises(Exception, match="contains itself"):
        load_params(make_net(), f_pickle=path)


def test_a_net_without_its_optimizer_gives_the_rest(folder: Path) -> None:
    net = make_net().fit(X, Y)
    net.trim_for_prediction()
    path = pickled(net)

    with pytest.raises(StateDictMismatchError, match=r"other parts.*strict=False") as raised:
        load_params(make_net(), f_pickle=path)
    assert set(raised.value.missing) == {"criterion", "optimizer"}
    loaded = make_net()
    load_params(loaded, f_pickle=path, strict=False)
    assert same(loaded.module_.state_dict(), net.module_.state_dict())
    assert isinstance(loaded, NeuralNetClassifier)

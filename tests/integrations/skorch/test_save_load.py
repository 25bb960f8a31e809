"""`save_params` and `load_params`: all parts of a net, to and from whatever there is."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from skorch.exceptions import NotInitializedError
from torch import nn

import tensorkeep
from tensorkeep.errors import (
    FormatError,
    IntegrityError,
    SourceMissingError,
    StateDictMismatchError,
    StateError,
    UnsupportedError,
)
from tensorkeep.integrations.skorch import load_params, save_params
from tests.support.integrations.skorch.nets import (
    CrosswiseLayers,
    Layers,
    TiedLayers,
    X,
    Y,
    make_net,
    make_two,
    parts_of,
    same,
)

PARTS = ("f_params", "f_optimizer", "f_criterion", "f_history")


@pytest.fixture(scope="module")
def net() -> Any:
    return make_net().fit(X, Y)


def fresh(net: Any, **options: Any) -> Any:
    """Return a net such as another before it was trained, and initialized differently."""
    made = make_net(module=type(net.module_), **options).initialize()
    with torch.no_grad():
        for parameter in made.module_.parameters():
            parameter.add_(1)
    return made


def named(folder: Path, kind: str) -> dict[str, Any]:
    """Return a target for each part: texts, paths, or file objects."""
    if kind == "file objects":
        return {argument: io.BytesIO() for argument in PARTS}
    paths = {argument: folder / f"{argument}.file" for argument in PARTS}
    return {argument: str(path) for argument, path in paths.items()} if kind == "texts" else paths


def rewind(targets: dict[str, Any]) -> None:
    for target in targets.values():
        if isinstance(target, io.BytesIO):
            target.seek(0)


@pytest.mark.parametrize("kind", ["texts", "paths", "file objects"])
def test_all_parts_come_back(net: Any, tmp_path: Path, kind: str) -> None:
    targets = named(tmp_path, kind)

    save_params(net, **targets)
    rewind(targets)
    other = fresh(net)
    load_params(other, **targets)

    assert same(parts_of(other), parts_of(net))
    assert type(other.history) is type(net.history)
    assert not any(target.closed for target in targets.values() if isinstance(target, io.BytesIO))


@pytest.mark.parametrize("kind", ["text", "file object"])
def test_one_file_brings_all_back_to_a_net_that_is_not_initialized(net: Any, tmp_path: Path, kind: str) -> None:
    target = str(tmp_path / "net.safetensors") if kind == "text" else io.BytesIO()

    save_params(net, f_checkpoint=target)
    other = make_net()
    load_params(other, f_checkpoint=target)

    assert same(parts_of(other), parts_of(net))
    assert other.classes_.tolist() == [0, 1]
    assert np.array_equal(other.predict_proba(X), net.predict_proba(X))


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("chosen", [["f_params"], ["f_optimizer"], ["f_history"], ["f_criterion", "f_history"]])
def test_only_what_is_named_is_loaded(net: Any, tmp_path: Path, chosen: list[str], whole: bool) -> None:
    targets = {argument: tmp_path / argument for argument in PARTS}
    save_params(net, **({"f_checkpoint": tmp_path / "all"} if whole else targets))
    other = fresh(net)
    before = parts_of(fresh(net))

    load_params(other, **{argument: tmp_path / "all" if whole else targets[argument] for argument in chosen})

    expected = {name: parts_of(net)[name] if argument in chosen else before[name] for name, argument in NAMES.items()}
    assert same(parts_of(other), expected)


NAMES = {"module": "f_params", "criterion": "f_criterion", "optimizer": "f_optimizer", "history": "f_history"}


def test_custom_parts_are_saved_by_their_names(tmp_path: Path) -> None:
    net = make_two().fit(X, Y)
    names = {
        f"f_{name}": tmp_path / name for name in ("module", "teacher", "criterion", "optimizer", "slow_optimizer")
    }

    save_params(net, **names)
    other = make_two().initialize()
    load_params(other, **names, f_history=None)

    assert same(parts_of(other) | {"history": None}, parts_of(net) | {"history": None})
    assert other.criterion_.scale != 1.5


def test_one_file_has_custom_parts_unasked(tmp_path: Path) -> None:
    net = make_two().fit(X, Y)

    save_params(net, f_checkpoint=tmp_path / "net.safetensors")
    other = make_two()
    load_params(other, f_checkpoint=tmp_path / "net.safetensors")

    assert same(parts_of(other), parts_of(net))


@pytest.mark.parametrize("module", [TiedLayers, CrosswiseLayers])
def test_tied_and_crosswise_weights_are_saved(tmp_path: Path, module: type[nn.Module]) -> None:
    net = make_net(module=module).fit(X, Y)

    save_params(net, f_params=tmp_path / "p.safetensors", f_optimizer=tmp_path / "o.safetensors")
    other = fresh(net)
    load_params(other, f_params=tmp_path / "p.safetensors", f_optimizer=tmp_path / "o.safetensors")

    assert same(parts_of(other)["module"], parts_of(net)["module"])
    assert same(parts_of(other)["optimizer"], parts_of(net)["optimizer"])
    if module is TiedLayers:
        assert other.module_.outer.weight is other.module_.inner.weight
        loaded = tensorkeep.load(tmp_path / "p.safetensors")
        assert loaded["outer.weight"].data_ptr() == loaded["inner.weight"].data_ptr()
        assert (
            sum(tensor.nbytes for tensor in tensorkeep.open(tmp_path / "p.safetensors").values())
            > (tmp_path / "p.safetensors").stat().st_size - 3000
        ), "stored twice"


def test_skorch_itself_reads_the_module(net: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "params.safetensors")

    save_params(net, f_params=path)
    other = fresh(net)
    other.load_params(f_params=path, use_safetensors=True)

    assert same(parts_of(other)["module"], parts_of(net)["module"])
    with safe_open(path, "pt") as file:
        assert sorted(file.keys()) == sorted(net.module_.state_dict())


def test_skorch_itself_reads_the_history(net: Any, tmp_path: Path) -> None:
    save_params(net, f_history=tmp_path / "history.json")
    other = fresh(net)
    other.load_params(f_history=str(tmp_path / "history.json"))

    assert other.history == net.history


def test_all_tensors_have_digests(net: Any, tmp_path: Path) -> None:
    save_params(net, f_params=tmp_path / "p.safetensors", f_optimizer=tmp_path / "o.safetensors")

    for name in ("p.safetensors", "o.safetensors"):
        found = tensorkeep.verify(tmp_path / name)
        assert found.is_whole
        assert found.n_checked > 5


@pytest.mark.parametrize("argument", ["f_params", "f_optimizer", "f_checkpoint"])
def test_a_changed_byte_is_found_and_nothing_is_changed(net: Any, tmp_path: Path, argument: str) -> None:
    path = tmp_path / "file.safetensors"
    save_params(net, **{argument: path})
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    other = fresh(net)
    before = parts_of(fresh(net))

    with pytest.raises(IntegrityError, match=r"file\.safetensors"):
        load_params(other, **{argument: path})

    assert same(parts_of(other), before)


@pytest.mark.parametrize("wrong", ["missing", "other shape", "other optimizer", "no history"])
def test_where_one_part_does_not_fit_none_is_loaded(net: Any, tmp_path: Path, wrong: str) -> None:
    targets = {argument: tmp_path / argument for argument in PARTS}
    save_params(net, **targets)
    other = fresh(net)
    before = parts_of(fresh(net))
    if wrong == "missing":
        targets["f_optimizer"].unlink()
    elif wrong == "other shape":
        save_params(make_net(module__width=9).fit(X, Y), f_params=targets["f_params"])
    elif wrong == "other optimizer":
        save_params(net, f_params=targets["f_optimizer"])
    else:
        targets["f_history"].write_text("[1, 2]", encoding="utf-8")

    with pytest.raises((SourceMissingError, StateDictMismatchError)) as raised:
        load_params(other, **targets)

    place = {"other shape": "f_params", "no history": "f_history"}.get(wrong, "f_optimizer")
    assert str(targets[place]) in str(raised.value)
    assert same(parts_of(other), before)


def test_fewer_and_more_names_are_loaded_if_that_is_said(net: Any, tmp_path: Path) -> None:
    class Wider(Layers):
        def __init__(self) -> None:
            super().__init__()
            self.more = nn.Linear(1, 1)

    wide = make_net(module=Wider).fit(X, Y)
    save_params(net, f_params=tmp_path / "narrow")
    save_params(wide, f_params=tmp_path / "wide")

    with pytest.raises(StateDictMismatchError, match=r"2 missing: `more\.weight`, `more\.bias`.*strict=False"):
        load_params(wide, f_params=tmp_path / "narrow")
    load_params(wide, f_params=tmp_path / "narrow", strict=False)
    assert torch.equal(wide.module_.last.weight, net.module_.last.weight)

    other = fresh(net)
    with pytest.raises(StateDictMismatchError, match=r"2 unexpected"):
        load_params(other, f_params=tmp_path / "wide")
    load_params(other, f_params=tmp_path / "wide", strict=False)
    assert torch.equal(other.module_.norm.running_var, tensorkeep.load(tmp_path / "wide")["norm.running_var"])


def test_a_net_of_other_parts_is_loaded_if_that_is_said(net: Any, tmp_path: Path) -> None:
    save_params(net, f_checkpoint=tmp_path / "net.safetensors")
    two = make_two().initialize()
    before = parts_of(two)["teacher"]

    with pytest.raises(StateDictMismatchError, match=r"other parts.*teacher") as raised:
        load_params(two, f_checkpoint=tmp_path / "net.safetensors")
    assert raised.value.missing == ("teacher", "slow_optimizer")

    trained = make_two().fit(X, Y)
    save_params(trained, f_checkpoint=tmp_path / "two.safetensors")
    one = make_net(criterion=nn.CrossEntropyLoss).initialize()
    with pytest.raises(StateDictMismatchError, match="other parts") as raised:
        load_params(one, f_checkpoint=tmp_path / "two.safetensors")
    assert raised.value.unexpected == ("teacher", "slow_optimizer")
    assert same(parts_of(two)["teacher"], before)


def test_what_was_trained_with_wrappers_is_loaded_without(net: Any, tmp_path: Path) -> None:
    compiled = make_net(compile=True, compile__backend="eager").fit(X, Y)
    assert all(name.startswith("_orig_mod.") for name in compiled.module_.state_dict())

    save_params(compiled, f_params=tmp_path / "compiled")
    save_params(net, f_params=tmp_path / "plain")
    other = fresh(net)
    load_params(other, f_params=tmp_path / "compiled")
    load_params(compiled, f_params=tmp_path / "plain")

    assert sorted(tensorkeep.load(tmp_path / "compiled")) == sorted(net.module_.state_dict())
    assert torch.equal(compiled.module_._orig_mod.last.weight, net.module_.last.weight)
    assert not torch.equal(other.module_.last.weight, net.module_.last.weight)


def test_the_module_may_come_from_shards(net: Any, tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(dict(net.module_.state_dict()), tmp_path / "shards", max_shard_size=200)
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1

    load_params(other := fresh(net), f_params=tmp_path / "shards")

    assert same(parts_of(other)["module"], parts_of(net)["module"])


def test_a_net_without_its_optimizer_is_saved(net: Any, tmp_path: Path) -> None:
    trimmed = copy.deepcopy(net)
    trimmed.trim_for_prediction()

    save_params(trimmed, f_checkpoint=tmp_path / "net")
    load_params(other := fresh(net), f_checkpoint=tmp_path / "net", strict=False)

    assert set(tensorkeep.load(tmp_path / "net")) == {"module", "history", "training"}
    assert same(parts_of(other)["module"], parts_of(net)["module"])


def test_random_generators_are_brought_back_where_that_is_asked_for(net: Any, tmp_path: Path) -> None:
    own = torch.Generator().manual_seed(5)
    with_own = make_net(iterator_train__generator=own, iterator_train__shuffle=True).fit(X, Y)
    save_params(with_own, f_training=tmp_path / "training", f_checkpoint=tmp_path / "all")
    expected = torch.rand(3), np.random.rand(3), torch.rand(3, generator=own)

    for arguments in ({"f_training": tmp_path / "training"}, {"f_checkpoint": tmp_path / "all", "training": True}):
        load_params(with_own, **arguments)
        assert same(list(map(torch.as_tensor, expected)), [torch.rand(3), torch.as_tensor(np.random.rand(3)),
                                                          torch.rand(3, generator=own)])  # fmt: skip
    state = torch.get_rng_state()
    load_params(with_own, f_checkpoint=tmp_path / "all")
    assert torch.equal(torch.get_rng_state(), state)


def test_states_of_devices_that_are_not_here_are_left_out(net: Any, tmp_path: Path) -> None:
    save_params(net, f_training=tmp_path / "training")
    training = tensorkeep.load(tmp_path / "training")
    assert "cuda" not in training["rng"] or torch.cuda.is_available()
    many = torch.cuda.device_count() + 1
    training["rng"]["cuda"] = [torch.zeros(16, dtype=torch.uint8)] * many
    tensorkeep.save(training, tmp_path / "from elsewhere")
    expected = torch.rand(3)

    load_params(fresh(net), f_training=tmp_path / "from elsewhere")

    assert torch.equal(torch.rand(3), expected)


def test_nothing_to_do_is_said(net: Any, capsys: pytest.CaptureFixture[str]) -> None:
    loud = fresh(net, verbose=1)

    save_params(loud)
    load_params(loud)
    save_params(net)

    assert capsys.readouterr().out == "Nothing to save\nNothing to load\n"


Act = Callable[[Any, Path], object]

WRONG: dict[str, tuple[Act, type[Exception], str]] = {
    "not initialized, saved": (
        lambda net, path: save_params(make_net(), f_params=path), NotInitializedError, r"Cannot save.*\.initialize",
    ),
    "not initialized, loaded": (
        lambda net, path: load_params(make_net(), f_params=path), NotInitializedError, r"Cannot load.*\.initialize",
    ),
    "no such part": (
        lambda net, path: save_params(net, f_modul=path), StateError, r"no part 'modul'.*module, criterion",
    ),
    "no such part, loaded": (
        lambda net, path: load_params(net, f_modul=path), StateError, r"no part 'modul'",
    ),
    "no argument for a file": (
        lambda net, path: save_params(net, params=path), TypeError, r"did you mean 'f_params'",
    ),
    "two names of one part": (
        lambda net, path: save_params(net, f_params=path, f_module=path), TypeError, r"f_params and f_module",
    ),
    "one file for two parts": (
        lambda net, path: save_params(net, f_params=path, f_optimizer=path.parent / "x" / ".." / path.name),
        UnsupportedError, r"two parts would be written to one file",
    ),
    "a pickle": (
        lambda net, path: save_params(net, f_pickle=path), UnsupportedError, r"runs code from the file",
    ),
    "two files with everything": (
        lambda net, path: load_params(net, f_checkpoint=path, f_pickle=path), TypeError, r"f_checkpoint and f_pickle",
    ),
    "no directory": (
        lambda net, path: save_params(net, f_params=path.parent / "no" / "p"), SourceMissingError, r"Create the",
    ),
    "no file": (lambda net, path: load_params(net, f_params=path.parent / "no"), SourceMissingError, r"/no"),
    "no history": (lambda net, path: load_params(net, f_history=path.parent / "no"), SourceMissingError, r"/no"),
    "a part for everything": (
        lambda net, path: load_params(net, f_checkpoint=path), StateDictMismatchError, r"not hold all.*f_params",
    ),
    "a module for a history": (
        lambda net, path: load_params(net, f_history=path), StateDictMismatchError, r"not the history",
    ),
    "a module for a training": (
        lambda net, path: load_params(net, f_training=path), StateDictMismatchError, r"not the state of a training",
    ),
    "no net": (
        lambda net, path: load_params(net, f_params=__file__), FormatError, r"test_save_load",
    ),
    "bytes for a path": (
        lambda net, path: save_params(net, f_params=b"name"), UnsupportedError, r"a path or a binary file object",
    ),
    "a number for a path": (
        lambda net, path: load_params(net, f_history=5), UnsupportedError, r"cannot be opened",
    ),
    "a file object for text": (
        lambda net, path: save_params(net, f_params=io.StringIO()), UnsupportedError, r'Open it in binary mode: "wb"',
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_done_is_said(net: Any, tmp_path: Path, case: str) -> None:
    act, kind, message = WRONG[case]
    path = tmp_path / "params"
    (tmp_path / "x").mkdir()
    save_params(net, f_params=path)
    before = {each.name for each in tmp_path.iterdir()}

    with pytest.raises(kind, match=message):
        act(fresh(net), path)

    assert {each.name for each in tmp_path.iterdir()} == before


def test_a_net_that_is_not_initialized_takes_a_history(net: Any, tmp_path: Path) -> None:
    save_params(net, f_history=tmp_path / "h.json", f_checkpoint=tmp_path / "all")

    for path in (tmp_path / "h.json", tmp_path / "all"):
        load_params(other := make_net(), f_history=path)
        assert other.history == net.history
        assert not other.initialized_


def test_a_broken_history_is_said(net: Any, tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_text('[{"epoch": 1}, {', encoding="utf-8")

    with pytest.raises(FormatError, match=r"not JSON.*history\.json"):
        load_params(net, f_history=path)


def test_histories_keep_their_numbers(net: Any, tmp_path: Path) -> None:
    other = fresh(net).fit(X, Y)
    other.history.record("single", np.float32(0.1))
    other.history.record("none", float("nan"))
    other.history.record("count", np.int64(2**60 + 1))
    save_params(other, f_history=tmp_path / "h.json", f_checkpoint=tmp_path / "h.safetensors")

    load_params(loaded := fresh(net), f_history=tmp_path / "h.json")
    assert loaded.history[-1, "single"] == float(np.float32(0.1))
    assert loaded.history[-1, "count"] == 2**60 + 1
    assert np.isnan(loaded.history[-1, "none"])
    load_params(loaded, f_history=tmp_path / "h.safetensors")
    assert type(loaded.history[-1, "single"]) is np.float32


def test_a_history_with_what_json_cannot_say(net: Any, tmp_path: Path) -> None:
    other = fresh(net).fit(X, Y)
    other.history.record("gradient", torch.ones(3))

    with pytest.raises(StateError, match=r"history\[1\]\['gradient'\].*torch\.Tensor.*f_checkpoint"):
        save_params(other, f_history=tmp_path / "h.json")
    save_params(other, f_checkpoint=tmp_path / "h.safetensors")
    load_params(loaded := fresh(net), f_history=tmp_path / "h.safetensors")

    assert loaded.history[-1, "gradient"].tolist() == [1, 1, 1]
    assert not (tmp_path / "h.json").exists()


def test_text_files_take_the_history(net: Any, tmp_path: Path) -> None:
    with open(tmp_path / "h.json", "w", encoding="utf-8") as file:
        save_params(net, f_history=file)
        assert not file.closed
    other = fresh(net)
    with open(tmp_path / "h.json", encoding="utf-8") as file:
        load_params(other, f_history=file)

    assert other.history == net.history


def test_file_objects_that_take_a_little_at_a_time_get_everything(net: Any, tmp_path: Path) -> None:
    class Slow(io.RawIOBase):
        def __init__(self) -> None:
            self.data, self.n_flushed = b"", 0

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            self.data += bytes(data[:1000])
            return min(len(data), 1000)

        def flush(self) -> None:
            self.n_flushed += 1

    slow = Slow()
    save_params(net, f_checkpoint=slow)
    other = make_net()
    load_params(other, f_checkpoint=io.BytesIO(slow.data))

    assert same(parts_of(other), parts_of(net))
    assert slow.n_flushed


def test_a_file_object_that_fails_leaves_the_other_files(net: Any, tmp_path: Path) -> None:
    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(28, "No space left on device")

    path = tmp_path / "params"
    save_params(net, f_params=path)
    before = path.read_bytes()

    with pytest.raises(OSError, match="No space left"):
        save_params(fresh(net), f_params=path, f_optimizer=Full())

    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["params"]


def test_files_in_several_directories(net: Any, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("a")
    targets = {
        "f_params": tmp_path / "a" / "file",
        "f_optimizer": tmp_path / "b" / "file",
        "f_criterion": tmp_path / "link" / "other",
    }

    save_params(net, **targets)
    other = fresh(net)
    load_params(other, **targets)

    assert same(parts_of(other)["optimizer"], parts_of(net)["optimizer"])

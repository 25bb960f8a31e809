"""Whole states saved and loaded: what comes back is what was saved, as one file and as shards."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings

import tensorkeep
from tensorkeep.errors import (
    DtypeError,
    FormatError,
    HeaderError,
    LimitError,
    RefusedError,
    SharedMemoryError,
    StateError,
    TensorkeepError,
    TensorNotFoundError,
    UnsupportedError,
)
from tensorkeep.formats.safetensors import STATE_KEY, emit_header, lay_out
from tensorkeep.tensors import prepare
from tests.support.soak import rounds
from tests.support.state.exactly import assert_exactly
from tests.support.state.states import CLASSES, Config, states

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


@given(state=states())
@settings(max_examples=rounds(300, 20_000), deadline=None, suppress_health_check=list(HealthCheck))
def test_a_file_gives_back_exactly_what_was_saved(state: Any) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path = Path(folder) / "state.safetensors"
        again = Path(folder) / "again.safetensors"
        tensorkeep.save(state, path, durable=False)
        loaded = tensorkeep.load(path, classes=CLASSES)
        assert_exactly(loaded, state)
        tensorkeep.save(loaded, again, durable=False)
        assert_exactly(tensorkeep.load(again, classes=CLASSES), state)
        with tensorkeep.open(path) as file:
            tensorkeep.save(file, again, durable=False)
        assert again.read_bytes() == path.read_bytes()


@given(state=states())
@settings(max_examples=rounds(150, 7_000), deadline=None, suppress_health_check=list(HealthCheck))
def test_shards_give_back_exactly_what_was_saved(state: Any) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path, other = Path(folder) / "state", Path(folder) / "other"
        tensorkeep.save_checkpoint(state, path, max_shard_size=40, split_large=True, durable=False)
        assert_exactly(tensorkeep.load(path, classes=CLASSES), state)
        tensorkeep.reshard(path, other, max_shard_size="1MB", durable=False)
        assert_exactly(tensorkeep.load(other, classes=CLASSES), state)


@given(state=states())
@settings(max_examples=rounds(150, 7_000), deadline=None, suppress_health_check=list(HealthCheck))
def test_copies_have_the_same_values_and_each_name_can_be_read_alone(state: Any) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        path = Path(folder) / "state.safetensors"
        tensorkeep.save(state, path, durable=False)
        assert_exactly(tensorkeep.load(path, classes=CLASSES, ties="copy"), state, shares_memory=False)
        with tensorkeep.open(path) as file:
            whole = tensorkeep.load(path, ties="copy", framework="numpy") if not file.has_tree else None
            for name, lazy in file.items():
                assert lazy.load().shape == lazy.shape == file[name][...].shape
                assert whole is None or np.array_equal(whole[name], lazy.load(), equal_nan=True)


def tied_state() -> dict[str, Any]:
    """A state whose tensors share memory in every way."""
    w = torch.arange(24.0).reshape(4, 6)
    loose = torch.arange(10.0)
    z = torch.tensor([0j, 1 + 2j, 3, 4j])
    return {
        "embed": w,
        "head": w.view(4, 6),
        "turned": w.t(),
        "rows": w[1:3],
        "column": w[:, 2],
        "bytes": w.view(torch.uint8)[0],
        "early": loose[:6],
        "late": loose[4:],
        "spread": torch.ones(1, 3).expand(5, 3),
        "image": torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "z": z,
        "conj": z.conj(),
        "imag": z.imag,
        "neg": z.conj().imag,
    }


@pytest.mark.parametrize("shards", [False, True])
def test_memory_is_stored_once_and_shared_again(tmp_path: Path, shards: bool) -> None:
    state, path = tied_state(), tmp_path / "state.safetensors"
    if shards:
        path = tmp_path / "state"
        tensorkeep.save_checkpoint(state, path, max_shard_size=90)
    else:
        tensorkeep.save(state, path)

    loaded = tensorkeep.load(path)
    assert_exactly(loaded, state)
    loaded["embed"].fill_(7)
    assert loaded["turned"].unique().tolist() == [7]
    assert loaded["rows"].sum() == 2 * 6 * 7
    loaded["late"][0] = -1
    assert loaded["early"][4] == -1
    loaded["z"][1] = 3 + 4j
    assert loaded["conj"][1] == 3 - 4j
    assert loaded["neg"][1] == -4
    with tensorkeep.open(path) as file:
        stored = sum(shard.nbytes for shard in file.shards.values())
        assert stored == 24 * 4 + 10 * 4 + 3 * 4 + 2 * 3 * 4 * 5 * 4 + 4 * 8
        assert set(file) == set(state)
        for name, tensor in state.items():
            assert np.array_equal(file[name][...], tensor.resolve_conj().resolve_neg().numpy()), name
            assert np.array_equal(file[name].load(), file[name][...])
        assert np.array_equal(file["turned"][1:3, ::2], state["turned"][1:3, ::2].numpy())
        assert np.array_equal(file["late"][-1], 9.0)


def test_other_readers_find_what_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    tensorkeep.save({"model": tied_state(), "step": 3}, path)

    others = safetensors.torch.load_file(path)
    assert torch.equal(others["model.embed"], tied_state()["embed"])
    assert "model.early#storage" in others
    with safetensors.safe_open(path, "pt") as file:
        assert file.metadata()["model.head"] == "model.embed"


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(3, 3, bias=False)
        self.b = torch.nn.Linear(3, 3, bias=False)
        self.b.weight = self.a.weight


def test_the_reference_loads_a_tied_model(tmp_path: Path) -> None:
    path, model, other = tmp_path / "model.safetensors", Tied(), Tied()
    tensorkeep.save(model.state_dict(), path)

    assert safetensors.torch.load_model(other, path) == (set(), [])
    assert torch.equal(other.b.weight, model.b.weight)
    assert tensorkeep.torch.load_model(Tied(), path) == (set(), [])
    state_dict = tensorkeep.load(path)
    assert list(state_dict) == ["a.weight", "b.weight"]
    assert state_dict["a.weight"].data_ptr() == state_dict["b.weight"].data_ptr()
    Tied().load_state_dict(state_dict, strict=True)
    Tied().load_state_dict(tensorkeep.torch.load_file(path), strict=True)


def test_ties_can_be_refused_or_dissolved(tmp_path: Path) -> None:
    path, w = tmp_path / "state.safetensors", torch.ones(3)
    with pytest.raises(SharedMemoryError, match="`a`, `b`"):
        tensorkeep.save({"a": w, "b": w}, path, ties="error")
    tensorkeep.save({"a": w, "b": w}, path, ties="copy")
    assert tensorkeep.load(path, ties="error")["a"].tolist() == [1, 1, 1]
    tensorkeep.save({"a": w, "b": w}, path)
    with pytest.raises(SharedMemoryError, match="`a`, `b`"):
        tensorkeep.load(path, ties="error")
    loaded = tensorkeep.load(path, ties="copy")
    assert loaded["a"].data_ptr() != loaded["b"].data_ptr()
    with pytest.raises(UnsupportedError, match="share"):
        tensorkeep.load(path, ties="keep")


def training_state() -> dict[str, Any]:
    return {
        "model": {"w": torch.ones(2, 2), "b": torch.zeros(2)},
        "optim": {"state": {0: {"step": torch.tensor(3.0), "avg": torch.ones(2)}}, "lr": 0.1},
        "history": [1.0, (2, torch.ones(1))],
        "seed": np.arange(3, dtype=np.uint32),
        "config": Config(3, {"deep": True}),
    }


def test_views_at_odd_places_keep_their_values(tmp_path: Path) -> None:
    path, memory = tmp_path / "state.safetensors", np.arange(64, dtype=np.uint8)
    state = {
        "memory": memory,
        "odd": memory[1:9].view("<f4"),
        "even": memory[8:24].view("<f8"),
        "odd again": memory[1:9].view("<f4"),
        "turned": memory[::-1],
        "late": memory[2:10].view("<i2"),
    }
    tensorkeep.save(state, path)

    loaded = tensorkeep.load(path)
    for name, array in state.items():
        assert loaded[name].tobytes() == array.tobytes(), name
        assert tensorkeep.open(path)[name][...].tobytes() == array.tobytes(), name
    loaded["memory"][8:10] = 255
    assert loaded["late"][3] == -1
    assert loaded["even"][0] != state["even"][0]


def test_parts_of_a_state_are_loaded_alone(tmp_path: Path) -> None:
    path, state = tmp_path / "state.safetensors", training_state()
    tensorkeep.save(state, path)

    assert_exactly(tensorkeep.load(path, only="model.*"), {"model": state["model"]})
    assert_exactly(tensorkeep.load(path, only="model"), {"model": state["model"]})
    assert_exactly(tensorkeep.load(path, only=["*.lr", "seed"]), {"optim": {"lr": 0.1}, "seed": state["seed"]})
    assert_exactly(tensorkeep.load(path, only="history.1"), {"history": [None, state["history"][1]]})
    assert_exactly(tensorkeep.load(path, only=lambda name: name.endswith(".w")), {"model": {"w": torch.ones(2, 2)}})
    assert tensorkeep.load(path, only="config", classes=[Config]) == {"config": state["config"]}
    with pytest.raises(TensorNotFoundError, match="model"):
        tensorkeep.load(path, only="modle.*")


def test_tensors_come_back_in_their_library_or_in_one_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    tensorkeep.save(training_state(), path)

    state = tensorkeep.load(path)
    assert type(state["model"]["w"]) is torch.Tensor
    assert type(state["seed"]) is np.ndarray
    state = tensorkeep.load(path, framework="numpy")
    assert type(state["model"]["w"]) is np.ndarray
    state = tensorkeep.load(path, framework="torch")
    assert type(state["seed"]) is torch.Tensor


def test_what_is_no_data_is_named_before_anything_is_written(tmp_path: Path) -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    for value, where in (
        ({"a": {"b": [1, print]}}, r"a\.b\.1"),
        ({"model": torch.nn.Linear(1, 1)}, "state_dict"),
        ({"loop": cycle}, "loop"),
        ({"a": {object(): 1}}, "a"),
    ):
        with pytest.raises(StateError, match=where):
            tensorkeep.save(value, tmp_path / "state.safetensors")
        with pytest.raises(TypeError):
            tensorkeep.save_checkpoint(value, tmp_path / "state")
    assert list(tmp_path.iterdir()) == []


def file_saying(text: str, path: Path) -> Path:
    entries = lay_out({"a": (tensorkeep.dtypes.BY_NAME["F32"], (2, 3), 24)})
    path.write_bytes(emit_header(entries, {STATE_KEY: text}) + np.arange(6, dtype=np.float32).tobytes())
    return path


def test_too_much_data_beside_the_tensors_is_found_by_name_before_anything_is_written(tmp_path: Path) -> None:
    state = {"weight": torch.ones(4), "run": {"step": 1, "losses": [0.5] * 1000, "log": "€" * 7_000_000}}
    tensorkeep.save(state, tmp_path / "state.safetensors")  # a header holds it, an index does not

    with pytest.raises(LimitError, match=r"42,\d{3},\d{3} bytes, most of it in 'run\.log'.*array.*text\.encode\(\)"):
        tensorkeep.save_checkpoint(state, tmp_path / "shards", max_shard_size=8, split_large=True)

    state["run"]["log"] = "\U0001f600" * 3_500_000  # twelve bytes each in the index
    with pytest.raises(LimitError, match=r"42,\d{3},\d{3} bytes, most of it in 'run\.log'"):
        tensorkeep.save_checkpoint(state, tmp_path / "shards", max_shard_size=8, split_large=True)
    assert not (tmp_path / "shards").exists()
    del state["run"]["log"]
    prepare(state).check_length(10_000)
    with pytest.raises(LimitError, match=r"most of it in 'run\.losses'"):
        prepare(state).check_length(2_000)


def test_a_state_of_a_later_version_is_refused_but_its_tensors_are_read(tmp_path: Path) -> None:
    path = file_saying('{"state":2,"aliases":[],"forest":[]}', tmp_path / "later.safetensors")

    with tensorkeep.open(path) as file:
        assert list(file) == ["a"]
        assert file["a"][1].tolist() == [3, 4, 5]
        assert file.load()["a"].shape == (2, 3)
        with pytest.raises(UnsupportedError, match="Update tensorkeep"):
            _ = file.tree
    with pytest.raises(UnsupportedError, match="version 2"):
        tensorkeep.load(path)


def read_all(path: Path) -> None:
    with tensorkeep.open(path) as file:
        file.load_tree(framework="numpy")
        for lazy in file.values():
            lazy.load()


@pytest.mark.parametrize(
    "text",
    [
        '{"state":1,"aliases":{"b":{"of":"c"}}}',
        '{"state":1,"aliases":{"a":{"of":"a"}}}',
        '{"state":1,"aliases":{"b":{"of":"a","offset":4}}}',
        '{"state":1,"aliases":{"b":{"of":"a","shape":[7]}}}',
        '{"state":1,"aliases":{"b":{"of":"a","strides":[6,1]}}}',
        '{"state":1,"aliases":{"b":{"of":"a","strides":[1]}}}',
        '{"state":1,"aliases":{"b":{"of":"a","strides":[-3,1]}}}',
        '{"state":1,"aliases":{"b":{"of":"a","offset":-4,"shape":[1]}}}',
        '{"state":1,"aliases":{"b":{"of":"a","dtype":"F64"}}}',
        '{"state":1,"aliases":{"b":{"of":"a","dtype":"F4"}}}',
        '{"state":1,"aliases":{"b":{"of":"a","dtype":"?"}}}',
        '{"state":1,"aliases":{"b":{"of":"a","offset":2,"shape":[1]}}}',
        '{"state":1,"aliases":{"b":{"of":"a","shape":[9223372036854775807,4],"strides":[0,0]}}}',
        '{"state":1,"aliases":{"b":{"of":"a","shape":[1,1,1,4294967296,4294967296],"strides":[0,0,0,0,0]}}}',
        '{"state":1,"aliases":{"b":{"of":"a","offset":2,"shape":[2],"is_neg":1}}}',
        '{"state":1,"aliases":{"b":{"of":"a","dtype":"BOOL","shape":[16],"is_neg":true}}}',
        '{"state":1,"aliases":{"b":{"of":"a","is_conj":true}}}',
        '{"state":1,"aliases":["b"]}',
        '{"state":1,"aliases":{"b":{}}}',
        '{"state":1,"tree":["dict","a",{},"a",{}]}',
        '{"state":1,"tree":["dict","b",{}]}',
        '{"state":1,"tree":["dict","a",{"order":[0,0]}]}',
        '{"state":1,"tree":["bytes",{"name":"a"}]}',
        '{"state":1,"tree":["composed","torch","sparse_coo",["dict"],["dict"]]}',
        '{"state":1,"tree":["list",["same",0]]}',
        '{"state":1,"tree":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"state":1,"tree":["dict","a",{}],"tree":["dict","b",{"name":"a"}]}',
        '{"state":1,"state":1,"tree":["dict","a",{}]}',
        '{"state":1,"library":"numpy","library":"torch","tree":["dict","a",{}]}',
        '{"state":1,"aliases":{"b":{"of":"a"},"b":{"of":"a","shape":[6]}}}',
        '{"state":1,"aliases":{"b":{"of":"a","shape":[6],"shape":[3]}}}',
        '{"state":1,"aliases":{"b\\u003a":{"of":"a"},"b\\u003A":{"of":"a"}}}',
        '{"state":1,"tree":["dict","x",{"name":"a","name":"a"}]}',
        '{"state":1,"tree":["dict","b\\u003a",1,"x",{"name":"a","name":"a"}]}',
        '{"state":1,"storages":["c"]}',
        '{"state":1,"aliases":{"b":{"of":"a"}},"storages":["a","c"]}',
        '{"state":1,"tree":[}',
        '{"state":1',
        '{"state":"1"}',
        '{"state":1.5}',
    ],
)
def test_what_cannot_be_true_is_one_of_our_errors(text: str, tmp_path: Path) -> None:
    path = file_saying(text, tmp_path / "hostile.safetensors")

    with pytest.raises(TensorkeepError):
        tensorkeep.load(path)
    assert tensorkeep.verify(path).is_damaged or '"composed"' in text or '"order"' in text
    with pytest.raises(TensorkeepError):
        read_all(path)


@pytest.mark.parametrize(
    "text",
    [
        '{"state":1,"aliases":{"b":{"of":"a","offset":0,"later":{"c":1}}},"later":[{"of":1}],"tree":["dict","a",{},"b",{}]}',
        '{"state" : 1, "tree" : ["dict", "a:\\u003a{", { "name" : "a" }]}',
    ],
)
def test_members_that_stand_once_are_read_however_they_are_written(text: str, tmp_path: Path) -> None:
    path = file_saying(text, tmp_path / "unusual.safetensors")

    loaded = tensorkeep.load(path)

    assert [tensor.shape for tensor in loaded.values()] == [(2, 3)] * len(loaded)


@pytest.mark.parametrize(
    "text",
    [
        '{"state":1,"library":"torch","tree":["dict","a",{"class":"os.system"}]}',
        '{"state":1,"tree":["dict","a",{"library":"os"}]}',
        '{"state":1,"library":"os","tree":["dict","a",{}]}',
    ],
)
def test_libraries_and_classes_are_those_that_are_known(text: str, tmp_path: Path) -> None:
    path = file_saying(text, tmp_path / "strange.safetensors")

    with pytest.raises(TensorkeepError):
        tensorkeep.load(path)
    assert tensorkeep.load(path, framework="numpy")["a"].shape == (2, 3)


def test_an_alias_is_small_however_large_it_says_it_is(tmp_path: Path) -> None:
    text = '{"state":1,"aliases":{"b":{"of":"a","shape":[1000000,1000000],"strides":[0,0]}}}'
    path = file_saying(text, tmp_path / "wide.safetensors")

    with tensorkeep.open(path) as file:
        assert file["b"][5, 7] == 0
        with pytest.raises(TensorkeepError, match="expanded"):
            file["b"].load()
        with pytest.raises(TensorkeepError):
            tensorkeep.load(path, ties="copy")
    assert tensorkeep.load(path)["b"].shape == (1_000_000, 1_000_000)


def test_tied_tensors_of_an_unknown_dtype_are_refused(tmp_path: Path) -> None:
    state = '{"state":1,"aliases":{"b":{"of":"a"}}}'
    header = {"__metadata__": {STATE_KEY: state}, "a": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}
    text = json.dumps(header).encode()
    path = tmp_path / "unknown.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))

    with pytest.raises(DtypeError, match="F99"):
        tensorkeep.load(path)


def test_columns_of_a_matrix_share_nothing(tmp_path: Path) -> None:
    path, fused = tmp_path / "state.safetensors", torch.arange(64.0).reshape(4, 16)
    state = {"gate": fused[:, :8], "up": fused[:, 8:], "even": fused[::2, 0], "odd": fused[1::2, 0]}
    tensorkeep.save({name: state[name] for name in ("gate", "up")}, path, ties="error")
    assert set(safetensors.torch.load_file(path)) == {"gate", "up"}
    tensorkeep.save({name: state[name] for name in ("up", "even", "odd")}, path, ties="error")
    tensorkeep.save(state, path)
    assert_exactly(tensorkeep.load(path), state)


def test_an_open_tree_is_saved_with_all_that_its_tensors_are(tmp_path: Path) -> None:
    path, other = tmp_path / "state.safetensors", tmp_path / "other.safetensors"
    state = {"w": torch.nn.Parameter(torch.ones(2, 3)), "n": 1, "image": tied_state()["image"], "array": np.ones(2)}
    state |= {"sparse": torch.eye(3).to_sparse(), "wide": np.ones(3, complex)}
    tensorkeep.save(state, path)

    with tensorkeep.open(path) as file:
        tree = file.tree
        tree["n"] = 2
        tensorkeep.save(tree, other)
        assert_exactly(tensorkeep.load(other), state | {"n": 2})
        tensorkeep.save(file.cast("bf16"), other)
        assert tensorkeep.load(other)["w"].dtype == torch.bfloat16
        assert_exactly(tensorkeep.load(other)["wide"], state["wide"])
        tensorkeep.save(file.select("w"), other)
        assert type(tensorkeep.load(other)["w"]) is torch.Tensor


def test_parts_of_values_and_hidden_memory_keep_their_names(tmp_path: Path) -> None:
    path, m = tmp_path / "state.safetensors", torch.arange(6.0).reshape(2, 3)
    state = {"x": m[:, :2], "y": m[:, 1:], "sparse": torch.eye(3).to_sparse()}
    tensorkeep.save(state, path)

    tensorkeep.edit(path, rename={"sparse.values": "sparse.v"})
    assert_exactly(tensorkeep.load(path), state)
    for names in ({"y": "x#storage"}, {"sparse.v": "x#storage"}):
        with pytest.raises(RefusedError, match="storage"):
            tensorkeep.edit(path, rename=names)
    assert_exactly(tensorkeep.load(path), state)


def test_a_thousand_views_of_a_few_bytes_are_not_copied_each(tmp_path: Path) -> None:
    view = '{"of":"a","shape":[524288],"strides":[0]}'
    names = [f'"b{number}":{view}' for number in range(1_000)]
    path = file_saying('{"state":1,"aliases":{' + ",".join(names) + "}}", tmp_path / "wide.safetensors")

    with tensorkeep.open(path) as file, pytest.raises(LimitError, match="share memory"):
        file.load()
    with pytest.raises(LimitError, match="share memory"):
        tensorkeep.load(path, ties="copy")
    assert len(tensorkeep.load(path)) == 1_001


def test_numbers_without_end_are_refused_wherever_a_tree_is_read(tmp_path: Path) -> None:
    path = file_saying('{"state":1,"tree":["dict","a",{},"n",' + "9" * 200_000 + "]}", tmp_path / "long.safetensors")

    with pytest.raises(FormatError):
        tensorkeep.edit(path, rename={"a": "b"})
    with pytest.raises(FormatError):
        tensorkeep.open(path).rename({"a": "b"})
    with pytest.raises(FormatError):
        tensorkeep.load(path)


def test_names_in_a_tree_follow_a_renaming(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    tensorkeep.save({"model": {"_orig_mod.w": torch.ones(2), "tied": (w := torch.ones(3)), "again": w}, "n": 3}, path)
    strip = lambda name: name.replace("_orig_mod.", "").replace("tied", "kept")  # noqa: E731

    tensorkeep.reshard(path, tmp_path / "resharded", rename=strip)
    tensorkeep.edit(path, rename=strip)

    for found in (tensorkeep.load(path), tensorkeep.load(tmp_path / "resharded")):
        assert list(found["model"]) == ["w", "kept", "again"]
        assert found["n"] == 3
        assert found["model"]["kept"].data_ptr() == found["model"]["again"].data_ptr()
    assert tensorkeep.verify(path).is_whole
    assert tensorkeep.verify(path, names=["model.again"]).n_checked == 1
    with pytest.raises(HeaderError):
        tensorkeep.edit(path, rename={"model.w": "\ud800"})


def test_equal_states_give_equal_bytes(tmp_path: Path) -> None:
    a, b = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    for path in (a, b):
        tensorkeep.save({**training_state(), "set": {"x", "y", "z", 1, 2.5}, "tied": tied_state()}, path)

    assert a.read_bytes() == b.read_bytes()


def test_a_broken_tree_names_its_file(tmp_path: Path) -> None:
    path = file_saying('{"state":1,"tree":["riddle"]}', tmp_path / "hostile.safetensors")
    with pytest.raises(FormatError, match=r"hostile\.safetensors"):
        tensorkeep.load(path)

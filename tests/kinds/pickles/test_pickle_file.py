"""`PickleFile` as a mapping of lazy tensors: names, order, slices, views, saving, closing, what it says of itself."""

from __future__ import annotations

import collections
import io
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tensorkeep
from tensorkeep.errors import DtypeError, PickleError, TensorNotFoundError, TransportError, UnsupportedError
from tensorkeep.formats.pickles import CompositeRecord, TensorRecord, Unknown
from tensorkeep.kinds.pickles import PickleFile, open_pickle
from tensorkeep.tensors import LazyTensor
from tests.support.pickles.honest_arrays import ARRAYS
from tests.support.pickles.honest_files import FORMS, run, saved
from tests.support.pickles.honest_objects import OBJECTS, Node, Settings
from tests.support.pickles.honest_tensors import TENSORS
from tests.support.pickles.same_tensor import assert_lazy_same
from tests.support.pickles.same_value import assert_same

STATE = {
    "step": 3,
    "model": collections.OrderedDict([
        ("layer.weight", torch.arange(24.0).view(4, 6)),
        ("layer.bias", torch.arange(4.0).bfloat16()),
        ("transposed", torch.arange(24.0).view(4, 6).t()),
        ("mask", torch.tensor([True, False, True])),
    ]),
    "optimizer": {
        "state": {0: {"step": torch.tensor(5.0), "exp_avg": torch.ones(4, 6)}},
        "param_groups": [{"lr": 0.1}],
    },
    "list": [torch.arange(3), (torch.zeros(0, 2), "text")],
    "settings": Settings(0.5, [1], torch.arange(2.0)),
    "array": np.arange(6.0).reshape(2, 3),
}
NAMES = [
    "model.layer.weight",
    "model.layer.bias",
    "model.transposed",
    "model.mask",
    "optimizer.state.0.step",
    "optimizer.state.0.exp_avg",
    "list.0",
    "list.1.0",
    "settings.weight",
    "array",
]
TARGETS = ["mmap", "pread", "bytes", "file object", "io.BytesIO"]


def tensors_of_state() -> dict[str, np.ndarray[Any, Any]]:
    model, state = STATE["model"], STATE["optimizer"]["state"][0]
    tensors = [*model.values(), *state.values(), STATE["list"][0], STATE["list"][1][0], STATE["settings"].weight]
    numpy = [tensor.float().numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy() for tensor in tensors]
    return dict(zip(NAMES, [*numpy, STATE["array"]], strict=True))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("state") / "model.pt"
    path.write_bytes(saved(STATE))
    return path


def opened(path: Path, how: str, **options: Any) -> PickleFile:
    if how in {"mmap", "pread"}:
        return open_pickle(path, backend=how, **options)
    data = path.read_bytes()
    targets = {"bytes": lambda: data, "file object": lambda: path.open("rb"), "io.BytesIO": lambda: io.BytesIO(data)}
    return open_pickle(targets[how](), **options)


def same(found: Any, expected: np.ndarray[Any, Any]) -> bool:
    return np.array_equal(np.asarray(found, dtype=expected.dtype), expected)


@pytest.mark.parametrize("how", TARGETS)
def test_names_and_tensors_from_anywhere(path: Path, how: str) -> None:
    with opened(path, how) as file:
        assert list(file) == NAMES
        assert len(file) == len(NAMES)
        for name, expected in tensors_of_state().items():
            assert name in file
            assert file[name].name == name
            assert file[name].shape == expected.shape
            assert same(file[name].load(), expected)
            assert same(np.asarray(file[name]), expected)
        assert list(file.load()) == NAMES
        assert all(same(array, tensors_of_state()[name]) for name, array in file.load().items())


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_same_names(form: str) -> None:
    file = open_pickle(saved(STATE, form))
    assert list(file) == NAMES
    assert all(same(file[name].load(), expected) for name, expected in tensors_of_state().items())


@pytest.mark.parametrize("how", TARGETS)
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_slices(path: Path, how: str, framework: str) -> None:
    with opened(path, how, framework=framework) as file:
        for name in ("model.layer.weight", "model.transposed", "array"):
            expected = tensors_of_state()[name]
            backwards = [np.s_[::-1]] if framework == "numpy" else []
            for index in [np.s_[1], np.s_[:, 2], np.s_[1:3, ::2], np.s_[..., -1], np.s_[[1, 0]], *backwards]:
                assert same(file[name][index], expected[index]), (name, index)
        assert file["optimizer.state.0.step"][()] == 5.0
        with pytest.raises(IndexError):
            file["array"][7]


def test_views_are_views_of_the_mapping(path: Path) -> None:
    with open_pickle(path, framework="torch") as file:
        view = file.select("model.*").strip_prefix("model.")
        assert list(view) == ["layer.weight", "layer.bias", "transposed", "mask"]
        renamed = view.rename({"mask": "cover"}).cast("bf16")
        assert renamed["transposed"].load().dtype == torch.bfloat16
        assert torch.equal(renamed["transposed"].load().float(), STATE["model"]["transposed"])
        assert torch.equal(renamed["cover"].load(), STATE["model"]["mask"])
        assert view.load().keys() == dict.fromkeys(view).keys()


@pytest.mark.parametrize("how", TARGETS)
@pytest.mark.parametrize("form", ["zip-2", "legacy-2"])
def test_a_view_is_saved_as_safetensors(tmp_path: Path, how: str, form: str) -> None:
    from safetensors.torch import load_file

    source = tmp_path / "model.pt"
    source.write_bytes(saved(STATE, form))
    with opened(source, how) as file:
        tensorkeep.save(file.select("model.*").strip_prefix("model."), tmp_path / "model.safetensors")
        tensorkeep.save(file, tmp_path / "all.safetensors")
    found = load_file(tmp_path / "model.safetensors")
    assert found.keys() == STATE["model"].keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in STATE["model"].items())
    assert all(
        same(tensor.float(), tensors_of_state()[name])
        for name, tensor in load_file(tmp_path / "all.safetensors").items()
    )


def test_every_strided_tensor_is_saved_with_its_numbers(tmp_path: Path) -> None:
    """Conjugated, negated, transposed, overlapping, expanded, of every dtype that the format has."""
    n_saved = 0
    for what, make in TENSORS.items():
        value = make()
        with open_pickle(saved(value), framework="torch") as file:
            if not isinstance(value, torch.Tensor) or list(file) != ["tensor"]:
                continue
            assert_lazy_same(file["tensor"], value, what)
            if file["tensor"].dtype in {"C32", "C128"}:
                with pytest.raises(DtypeError):
                    tensorkeep.save(file, tmp_path / "t.safetensors")
                continue
            tensorkeep.save(file, tmp_path / "t.safetensors")
            again = tensorkeep.open(tmp_path / "t.safetensors", framework="torch")["tensor"].load()
            assert_lazy_same(file["tensor"], again, what)
            n_saved += 1
    assert n_saved > 60


def test_what_is_no_tensor_is_unknown(path: Path) -> None:
    with open_pickle(path) as file:
        assert list(file.unknowns) == ["settings"]
        unknown = file.unknowns["settings"]
        assert unknown.qualified_name == "tests.support.pickles.honest_objects.Settings"
        assert unknown.state["rate"] == 0.5
        assert "tests.support.pickles.honest_objects.Settings" in repr(unknown)
        with pytest.raises(AttributeError):
            unknown.state = None
        with pytest.raises(TypeError):
            pickle.dumps(unknown)
        file.unknowns.clear()
        assert list(file.unknowns) == ["settings"]


@pytest.mark.parametrize(
    "what", ["cycle", "dataclass", "own state", "slots", "partial", "enums", "namedtuple", "generator of NumPy"]
)
def test_every_unknown_is_listed(what: str) -> None:
    value = OBJECTS[what]()
    file = open_pickle(saved({"here": value, "w": torch.ones(1)}))
    assert any(name == "here" or name.startswith("here.") for name in file.unknowns)
    assert file["w"].load() == 1.0


def test_tree(path: Path) -> None:
    with open_pickle(path) as file:
        tree = file.tree
        assert file.tree is tree
        assert tree["step"] == 3
        assert type(tree["model"]) is collections.OrderedDict
        assert type(tree["model"]["mask"]) is LazyTensor
        assert tree["model"]["mask"].name == "model.mask"
        assert tree["optimizer"]["state"][0]["exp_avg"][1].tolist() == [1.0] * 6
        assert type(tree["settings"]) is Unknown
        assert np.array_equal(tree["array"], STATE["array"])
        assert_same(open_pickle(path, framework="torch").tree, run(path.read_bytes()))


def test_tensors_of_several_parts_are_listed_by_part() -> None:
    value = {
        "sparse": torch.eye(3).to_sparse(),
        "quantized": torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.qint8),
        "meta": torch.empty(2, device="meta"),
    }
    file = open_pickle(saved(value), framework="torch")
    assert list(file) == ["sparse.indices", "sparse.values", "quantized.data"]
    assert file["sparse.values"].load().tolist() == [1.0] * 3
    tree = file.tree
    assert type(tree["sparse"]) is CompositeRecord
    assert tree["sparse"].settings["shape"] == (3, 3)
    assert type(tree["meta"]) is TensorRecord
    loaded = open_pickle(saved(value)).load_tree()
    assert type(loaded["sparse"]) is CompositeRecord
    assert loaded["sparse"].parts["values"].tolist() == [1.0] * 3


def test_what_was_saved_with_tensors_stands_beside_them() -> None:
    file = open_pickle(
        saved({"p": TENSORS["parameter with attributes"](), "s": TENSORS["subclass with attributes"]()})
    )
    record = file.tensors["p"]
    assert record.kind == "parameter"
    assert record.requires_grad
    assert record.attributes["tag"] == "mine"
    assert file.tensors["s"].subclass == ("tests.support.pickles.honest_tensors", "Scaled")
    loaded = open_pickle(saved({"p": TENSORS["parameter with attributes"]()}), framework="torch").load_tree()["p"]
    assert not hasattr(loaded, "tag")
    assert loaded.requires_grad


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (torch.ones(2), ["tensor"]),
        (nn.Parameter(torch.ones(2)), ["tensor"]),
        (torch.arange(4.0).untyped_storage(), ["tensor"]),
        ([torch.ones(1)], ["0"]),
        ((torch.ones(1), [torch.ones(1)]), ["0", "1.0"]),
        ({1: torch.ones(1), "1": torch.zeros(1)}, ["1", "1#2"]),
        ({"a.b": torch.ones(1), "a": {"b": torch.zeros(1)}}, ["a.b", "a.b#2"]),
        ({"": torch.ones(1)}, ["tensor"]),
        ({(1, "x"): torch.ones(1), None: torch.ones(1), 2.5: torch.ones(1)}, ["(1, 'x')", "None", "2.5"]),
        ({"é": torch.ones(1), "日本 語": torch.ones(1)}, ["é", "日本 語"]),
        ({"a": {}, "b": [], "c": None}, []),
        ("text", []),
        (np.ones(2), ["tensor"]),
        (np.float32(2), []),
        (np.array(["a"]), []),
    ],
    ids=str,
)
def test_names_of_all_kinds_of_values(value: Any, names: list[str]) -> None:
    file = open_pickle(saved(value))
    assert list(file) == names
    for name in names:
        assert file[name].load() is not None


def test_names_that_are_not_there(path: Path) -> None:
    with open_pickle(path) as file:
        assert "model" not in file
        assert 3 not in file
        with pytest.raises(TensorNotFoundError, match=r"model\.mask"):
            file["model.mesk"]
        with pytest.raises(KeyError):
            file["nothing"]
        assert file.get("nothing") is None


def test_what_a_file_says_of_itself(path: Path) -> None:
    with open_pickle(path) as file:
        assert file.path == str(path)
        assert file.form == "zip"
        assert file.metadata == {}
        assert not file.has_metadata
        nbytes = sum(lazy.nbytes for lazy in file.values())
        assert file.nbytes == nbytes
        assert repr(file) == f"PickleFile({str(path)!r}, zip, 10 tensors, {nbytes} bytes, 1 not known to be data)"
        assert repr(file["model.mask"]) == "LazyTensor('model.mask', BOOL, [3], 3 bytes)"


@pytest.mark.parametrize("how", ["mmap", "pread", "bytes"])
def test_lazy_tensors_can_be_pickled(path: Path, how: str) -> None:
    with opened(path, how, framework="torch") as file:
        for name, expected in tensors_of_state().items():
            lazy = pickle.loads(pickle.dumps(file[name]))
            assert lazy.name == name
            assert same(lazy.load().float(), expected)
            assert same(
                pickle.loads(pickle.dumps(file[name].cast("F64") if lazy.is_floating_point else lazy)).load(),
                expected,
            )
        with pytest.raises(TypeError, match="PickleFile"):
            pickle.dumps(file)


def test_a_closed_file_is_not_read(path: Path) -> None:
    for backend in ("mmap", "pread"):
        file = open_pickle(path, backend=backend)
        lazy, strided, view = file["model.layer.weight"], file["model.transposed"], file.select("model.*")
        tree = file.tree
        loaded = lazy.load()
        file.close()
        file.close()
        assert loaded[1, 1] == 7.0
        reads = [lazy.load, strided.load, file.load, file.load_tree, view.load, tree["list"][0].load]
        for read in [
            *reads,
            lambda lazy=lazy: lazy[0],
            lambda lazy=strided: lazy[0],
            lambda file=file: file["list.0"],
        ]:
            with pytest.raises(TransportError):
                read()


def test_many_threads_read_one_file(path: Path) -> None:
    expected = tensors_of_state()
    for backend in ("mmap", "pread"):
        with open_pickle(path, backend=backend) as file, ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda name, file=file: (name, file[name].load()), NAMES * 20))
        assert all(same(array, expected[name]) for name, array in found)


def test_values_of_torch_are_values_of_torch_again() -> None:
    value = {"d": torch.bfloat16, "e": torch.device("cuda:1"), "l": torch.sparse_coo, "q": torch.per_tensor_affine}
    loaded = open_pickle(saved(value), framework="torch").load_tree()
    assert loaded == value
    assert [type(found) for found in loaded.values()] == [type(expected) for expected in value.values()]
    for named in (open_pickle(saved(value)).load_tree(), open_pickle(saved(value), framework="torch").tree):
        assert named == {
            "d": "torch.bfloat16",
            "e": "cuda:1",
            "l": "torch.sparse_coo",
            "q": "torch.per_tensor_affine",
        }


def test_arguments_that_are_none(path: Path) -> None:
    with pytest.raises(UnsupportedError):
        open_pickle(path, framework="jax-like")
    with pytest.raises(PickleError):
        open_pickle(b"\x93NUMPY\x01\x00")
    with pytest.raises(PickleError):
        open_pickle(b"")


def test_arrays_are_lazy_tensors_too() -> None:
    for what in (
        "array of <i4",
        "array of >f4",
        "array of bfloat16",
        "Fortran order",
        "no dimensions",
        "empty array",
    ):
        array = ARRAYS[what]()
        file = open_pickle(saved({"a": array}))
        assert list(file) == ["a"]
        found = file["a"].load()
        assert found.dtype == array.dtype.newbyteorder("=")
        assert np.array_equal(found, array.astype(found.dtype))
        assert found.flags.writeable


def test_a_cycle_has_no_end_but_an_opening_has() -> None:
    root = Node()
    Node(Node(root))
    file = open_pickle(saved({"root": root}), framework="torch")
    assert len(file) == 3
    tree = file.tree
    assert tree["root"].state["children"][0].state["parent"] is tree["root"]
    loaded = file.load_tree()
    assert loaded["root"].state["children"][0].state["parent"] is loaded["root"]
    assert len(repr(tree)) < 500

"""`materialize`: the tensors of a tree or a part of it, sharing memory as the files store them."""

from __future__ import annotations

from argparse import Namespace
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tensorkeep
from tensorkeep.errors import IntegrityError, LimitError
from tensorkeep.formats.pickles import CompositeRecord
from tensorkeep.state import NamedData
from tests.support.pickles.honest_files import FORMS, saved
from tests.support.state.exactly import assert_exactly
from tests.support.state.states import CLASSES, Config

BASE = torch.arange(24.0)


def state() -> dict[str, Any]:
    weight = nn.Parameter(torch.ones(2, 3))
    return {
        "model": OrderedDict(
            embed=BASE.view(4, 6), head=BASE.view(4, 6), turned=BASE.view(4, 6).t(), alone=torch.ones(2)
        ),
        "weight": [weight, (weight, {"step": 5})],
        "sparse": torch.eye(3).to_sparse(),
        "halves": torch.arange(5, dtype=torch.bfloat16),
    }


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("form", ["safetensors", "shards", *FORMS])
def test_the_whole_tree_is_what_load_gives(tmp_path: Path, form: str, framework: str) -> None:
    path = write(tmp_path, form, state())
    with tensorkeep.open(path, framework=framework) as file:
        made = tensorkeep.materialize(file.tree)
    expected = tensorkeep.load(path, framework=framework)
    if type(made["sparse"]) is CompositeRecord:  # NumPy has no sparse arrays
        assert_exactly(made.pop("sparse").parts, expected.pop("sparse").parts)
    assert_exactly(made, expected)


@pytest.mark.parametrize("backend", ["mmap", "pread"])
@pytest.mark.parametrize("form", ["safetensors", "shards", *FORMS])
def test_ties_of_a_part(tmp_path: Path, form: str, backend: Any) -> None:
    with tensorkeep.open(write(tmp_path, form, state()), framework="torch", backend=backend) as file:
        model = tensorkeep.materialize(file.tree["model"])
        again = tensorkeep.materialize(file.tree["model"])
        weights = tensorkeep.materialize(file.tree["weight"])
    model["head"][1, 0] = 99
    assert model["embed"][1, 0] == model["turned"][0, 1] == 99
    assert again["embed"][1, 0] == 6
    assert type(model) is OrderedDict
    assert model["alone"].untyped_storage().data_ptr() != model["embed"].untyped_storage().data_ptr()
    assert weights[0].data_ptr() == weights[1][0].data_ptr()
    assert weights[0].requires_grad
    assert weights[1][0].requires_grad


def write(folder: Path, form: str, value: Any) -> Path:
    path = folder / "state"
    if form == "safetensors":
        tensorkeep.save(value, path.with_suffix(".safetensors"))
        return path.with_suffix(".safetensors")
    if form == "shards":
        tensorkeep.save_checkpoint(value, path, max_shard_size=64)
        return path
    path.write_bytes(saved(value, form))
    return path


def test_tensors_by_name_and_of_several_files(tmp_path: Path) -> None:
    tensorkeep.save(state(), tmp_path / "a.safetensors")
    np.save(tmp_path / "b.npy", np.arange(3))
    with tensorkeep.open(tmp_path / "a.safetensors") as a, tensorkeep.open(tmp_path / "b.npy") as b:
        lazy = a["model.embed"]
        made = tensorkeep.materialize({"all": a.select("model.*"), "two": [lazy, lazy], "b": b})
    made["all"]["model.embed"][0, 0] = -1
    assert made["two"][0] is made["two"][1]
    assert made["two"][0][0, 0] == made["all"]["model.turned"][0, 0] == -1
    assert made["b"]["b"].tolist() == [0, 1, 2] if "b" in made["b"] else len(made["b"]) == 1


def test_casts_and_tensors_in_pieces_that_are_the_same_stay_one(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint({"a": BASE.view(4, 6), "b": BASE.view(4, 6)}, tmp_path, max_shard_size=48)
    with tensorkeep.open(tmp_path, framework="torch") as file:
        cast = file["a"].cast("F64")
        made = tensorkeep.materialize({**file.tree, "cast": [cast, cast.renamed("c")]})
    made["a"][0, 0] = made["cast"][0][0, 0] = 7
    assert made["b"][0, 0] == made["cast"][1][0, 0] == 7
    assert made["cast"][0].dtype == torch.float64


def test_views_of_several_dtypes_and_signs(tmp_path: Path) -> None:
    memory = torch.arange(64, dtype=torch.uint8)
    pairs = torch.ones(3, dtype=torch.complex64)
    value = {"odd": memory[3:20], "wide": memory[8:40].view(torch.float64), "complex": pairs, "conj": pairs.conj()}
    value["all"] = memory
    tensorkeep.save(value, tmp_path / "state.safetensors")
    with tensorkeep.open(tmp_path / "state.safetensors", framework="torch") as file:
        made = tensorkeep.materialize({name: file.tree[name] for name in value if name != "all"})
    for name, tensor in list(value.items())[:-1]:
        assert torch.equal(made[name].resolve_conj(), tensor.resolve_conj()), name
    made["wide"][0] = 0
    made["complex"][0] = 1j
    assert made["odd"][5] == 0
    assert made["conj"][0] == -1j


def test_objects_keep_their_classes_or_are_rebuilt_if_allowed(tmp_path: Path) -> None:
    value = {"config": Config(3, {"w": torch.ones(2)}), "args": Namespace(w=BASE), "more": SimpleNamespace(x=[BASE])}
    tensorkeep.save(value, tmp_path / "state.safetensors")
    with tensorkeep.open(tmp_path / "state.safetensors", framework="torch") as file:
        made = tensorkeep.materialize(file.tree)
        rebuilt = tensorkeep.materialize(file.tree, classes=CLASSES)
    assert type(made["config"]) is NamedData
    assert_exactly(rebuilt, value)
    assert made["args"].w is made["more"].x[0] or made["args"].w.data_ptr() == made["more"].x[0].data_ptr()


def test_what_is_no_lazy_tensor_stays() -> None:
    other = object()
    value = {"a": 1, "b": [other, {2}], "c": np.ones(2)}
    made = tensorkeep.materialize(value)
    assert made["b"] == [other, {2}]
    assert made["c"] is value["c"]
    assert made["b"] is not value["b"]


def test_it_reads_what_verified_files_check(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    tensorkeep.save(state(), path)
    with path.open("r+b") as file:
        file.seek(-3, 2)
        last = file.read(1)
        file.seek(-3, 2)
        file.write(bytes([last[0] ^ 1]))
    with tensorkeep.open(path, verify=True) as opened, pytest.raises(IntegrityError):
        tensorkeep.materialize(opened.tree)


def test_lists_too_deep_for_python_are_an_error_of_ours() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(LimitError, match="nested too deeply"):
        tensorkeep.materialize(value)

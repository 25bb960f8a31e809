"""Memory that tensors share: `load_tree` keeps it, flat loading shares nothing, no write ever reaches the file."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tensorkeep
from tensorkeep.errors import LimitError
from tensorkeep.kinds.pickles import PickleFile, open_pickle
from tests.support.pickles.honest_files import saved

FORMS = ["zip-2", "zip-5", "legacy-2"]
BACKENDS = ["mmap", "pread"]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight


def views() -> dict[str, torch.Tensor]:
    base = torch.arange(24.0)
    matrix = base.view(4, 6)
    return {
        "all": base,
        "rows": matrix[1:3],
        "column": matrix[:, 2],
        "transposed": matrix.t(),
        "windows": base.unfold(0, 6, 3),
        "end": base[20:],
        "again": base,
        "alone": torch.arange(24.0),
    }


def written(tmp_path: Path, value: Any, form: str = "zip-2") -> Path:
    path = tmp_path / "model.pt"
    path.write_bytes(saved(value, form))
    return path


def digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", FORMS)
def test_loaded_tree_shares_memory_as_torch_would(tmp_path: Path, form: str, backend: Any) -> None:
    path = written(tmp_path, views(), form)
    before = digest(path)
    with open_pickle(path, framework="torch", backend=backend) as file:
        loaded = file.load_tree()
    assert loaded["again"] is loaded["all"]
    storages = {name: tensor.untyped_storage() for name, tensor in loaded.items()}
    assert len({storages[name]._cdata for name in storages if name != "alone"}) == 1
    assert storages["alone"]._cdata != storages["all"]._cdata
    assert storages["alone"].data_ptr() != storages["all"].data_ptr()
    theirs = torch.load(path, weights_only=False)
    for tensors in (loaded, theirs):
        tensors["rows"][0, 2] = 99.0
        tensors["transposed"].mul_(2)
        tensors["end"].zero_()
    assert float(loaded["all"][8]) == 198.0
    for name, tensor in theirs.items():
        assert torch.equal(loaded[name], tensor), name
        assert loaded[name].stride() == tensor.stride(), name
    assert torch.equal(loaded["alone"], torch.arange(24.0))
    assert digest(path) == before


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", FORMS)
def test_loaded_tree_shares_memory_in_numpy_too(tmp_path: Path, form: str, backend: Any) -> None:
    path = written(tmp_path, views(), form)
    before = digest(path)
    loaded = open_pickle(path, backend=backend).load_tree()
    assert loaded["again"] is loaded["all"]
    loaded["rows"][0, 2] = 99.0
    assert loaded["all"][8] == loaded["column"][1] == loaded["transposed"][2, 1] == 99.0
    assert loaded["alone"][8] == 8.0
    assert not np.shares_memory(loaded["alone"], loaded["all"])
    assert digest(path) == before


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("form", FORMS)
def test_flat_loading_shares_nothing(tmp_path: Path, form: str, framework: str, backend: Any) -> None:
    path = written(tmp_path, views(), form)
    before = digest(path)
    with open_pickle(path, framework=framework, backend=backend) as file:
        together = file.load()
        alone = {name: lazy.load() for name, lazy in file.items()}
        again = {name: lazy[...] for name, lazy in file.items()}
    originals = views()
    for tensors in (together, alone, again):
        for name in tensors:
            tensors[name][...] = -1
            for other in tensors:
                if other != name:
                    expected = originals[other].numpy()
                    assert np.array_equal(np.asarray(tensors[other]), expected), (name, other)
            tensors[name][...] = torch.as_tensor(originals[name]) if framework == "torch" else originals[name].numpy()
    assert digest(path) == before


@pytest.mark.parametrize("form", FORMS)
def test_tied_weights(form: str) -> None:
    model = Tied()
    for value in (model, model.state_dict(), {"model": model.state_dict()}):
        file = open_pickle(saved(value, form), framework="torch")
        prefix = "model." if isinstance(value, dict) and "model" in value else ""
        assert list(file) == [f"{prefix}embedding.weight", f"{prefix}head.weight"]
        first, second = file.values()
        assert first.span == second.span
        assert first.load().data_ptr() != second.load().data_ptr()
    state = open_pickle(saved(model.state_dict(), form), framework="torch").load_tree()
    assert state["embedding.weight"].data_ptr() == state["head.weight"].data_ptr()
    with torch.no_grad():
        state["head.weight"][2, 1] = 7.0
    assert state["embedding.weight"][2, 1] == 7.0


@pytest.mark.parametrize("form", FORMS)
def test_one_parameter_twice_is_one_object(form: str) -> None:
    parameter = nn.Parameter(torch.ones(3))
    loaded = open_pickle(
        saved([parameter, {"again": parameter}, parameter[1:].detach()], form), framework="torch"
    ).load_tree()
    assert loaded[1]["again"] is loaded[0]
    assert loaded[2].untyped_storage().data_ptr() == loaded[0].untyped_storage().data_ptr()


def test_parts_of_sparse_tensors_share_memory_with_others() -> None:
    values = torch.arange(3.0)
    sparse = torch.sparse_coo_tensor([[0, 1, 2]], values, (3,), is_coalesced=True)
    loaded = open_pickle(saved({"values": values, "sparse": sparse}), framework="torch").load_tree()
    loaded["values"][0] = 5.0
    assert loaded["sparse"].to_dense()[0] == 5.0


def test_storage_larger_than_its_views() -> None:
    base = torch.arange(1000.0)
    file = open_pickle(saved({"a": base[10:20], "b": base[15:25]}), framework="torch")
    assert file.nbytes == 80
    assert file["a"].span.start + 20 == file["b"].span.start
    loaded = file.load_tree()
    assert loaded["a"].untyped_storage().nbytes() == 4000
    loaded["a"][9] = 0
    assert loaded["b"][4] == 0
    assert file["a"].load().untyped_storage().nbytes() == 40
    assert file["b"][4:6].tolist() == [19.0, 20.0]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", FORMS)
def test_terabytes_that_are_one_number_stay_lazy(tmp_path: Path, form: str, backend: Any) -> None:
    huge = torch.tensor([2.5]).expand(2**20, 2**20)
    path = written(tmp_path, {"huge": huge, "row": torch.arange(4.0).expand(2**30, 4)}, form)
    with open_pickle(path, framework="torch", backend=backend) as file:
        lazy = file["huge"]
        assert lazy.shape == (2**20, 2**20)
        assert lazy.nbytes == 2**42
        assert lazy[5, 3:6].tolist() == [2.5] * 3
        assert file["row"][2**29 : 2**29 + 2, 1:3].tolist() == [[1.0, 2.0]] * 2
        for read in (lazy.load, file.load, lambda: tensorkeep.save(file, tmp_path / "out.safetensors")):
            with pytest.raises(LimitError):
                read()
        assert not (tmp_path / "out.safetensors").exists()
        loaded = file.load_tree()["huge"]
        assert loaded.shape == huge.shape
        assert loaded.stride() == (0, 0)
        assert loaded.untyped_storage().nbytes() == 4
        tree = open_pickle(path, backend=backend).load_tree()
        assert tree["huge"].strides == (0, 0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", FORMS)
def test_loaded_tensors_outlive_the_file(tmp_path: Path, form: str, backend: Any) -> None:
    path = written(tmp_path, {"a": torch.arange(5000.0), "b": torch.arange(3)}, form)
    file: PickleFile = open_pickle(path, framework="torch", backend=backend)
    tree, flat = file.load_tree(), file.load()
    file.close()
    path.unlink()
    for loaded in (tree, flat):
        loaded["a"].add_(1)
        assert torch.equal(loaded["a"], torch.arange(1.0, 5001.0))
        assert loaded["b"].tolist() == [0, 1, 2]


def test_two_loaded_trees_share_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, {"a": torch.arange(5.0), "n": [1]})
    file = open_pickle(path, framework="torch")
    first, second = file.load_tree(), file.load_tree()
    first["a"].zero_()
    first["n"].append(2)
    assert second["a"].tolist() == [0, 1, 2, 3, 4]
    assert second["n"] == [1]
    assert file.load_tree()["n"] == [1]


def test_gradients_of_one_view_do_not_disturb_another() -> None:
    base = torch.arange(4.0)
    loaded = open_pickle(saved({"a": base[:2], "b": base[2:]}), framework="torch").load_tree()
    weight = torch.ones(2, requires_grad=True)
    loss = (weight * loaded["a"]).sum()
    loaded["b"].mul_(3)
    loss.backward()
    assert weight.grad.tolist() == [0.0, 1.0]

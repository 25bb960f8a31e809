"""`ties`: tensors of a pickle that shared memory share it again, are copied, or are refused."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp

import tensorkeep
from tensorkeep.errors import LimitError, SharedMemoryError, UnsupportedError

FRAMEWORKS = ["numpy", "torch"]


def saved(value: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return buffer.getvalue()


def tied() -> dict[str, Any]:
    whole = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    weight = torch.nn.Parameter(torch.ones(3))
    return {
        "whole": whole,
        "row": whole[1],
        "columns": whole[:, ::2],
        "turned": whole.T,
        "same": whole,
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "parameters": [weight, weight],
        "alone": torch.ones(2, dtype=torch.bfloat16),
        "empty": whole[:0],
        "step": 7,
        "sparse": torch.eye(3).to_sparse(),
        "nothing": torch.ones(2, device="meta"),
        "array": np.arange(3),
    }


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    for child in value.values() if isinstance(value, dict) else value:
        if isinstance(child, list):
            yield from tensors_in(child)
        elif isinstance(child, torch.Tensor) and child.layout == torch.strided and not child.is_meta:
            yield child


@pytest.mark.parametrize("form", [{}, {"_use_new_zipfile_serialization": False}], ids=["zip", "legacy"])
def test_copies_have_memory_of_their_own(form: dict[str, Any]) -> None:
    content = saved(tied(), **form)
    shared = tensorkeep.load(content, framework="torch")
    copied = tensorkeep.load(content, framework="torch", ties="copy")

    assert copied.keys() == shared.keys()
    tensors = list(tensors_in(copied))
    for one, other in zip(tensors_in(shared), tensors, strict=True):
        assert torch.equal(one, other)
        assert one.dtype == other.dtype
        assert one.requires_grad == other.requires_grad
    storages = {tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.numel()}
    assert len(storages) == sum(1 for tensor in tensors if tensor.numel())
    assert shared["row"].untyped_storage().data_ptr() == shared["whole"].untyped_storage().data_ptr()
    assert copied["row"].untyped_storage().nbytes() == 6 * 4
    assert copied["step"] == 7
    assert copied["nothing"].is_meta
    assert torch.equal(copied["sparse"].to_dense(), torch.eye(3))


def test_copies_of_arrays_are_written_to_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(saved(tied()))
    copied = tensorkeep.load(path, ties="copy")
    copied["whole"][:] = 0

    assert copied["row"].tolist() == [6, 7, 8, 9, 10, 11]
    assert copied["same"][0, 1] == 1
    assert tensorkeep.load(path)["whole"][0, 1] == 1


def test_a_part_is_copied_too() -> None:
    part = tensorkeep.load(saved(tied()), only=["row", "columns"], ties="copy", framework="torch")
    assert list(part) == ["row", "columns"]
    assert part["columns"].is_contiguous()
    assert part["columns"].tolist() == tied()["columns"].tolist()


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    ("only", "names"),
    [
        (["whole", "row"], "`row`, `whole`|`whole`, `row`"),
        (["row", "turned"], "`row`, `turned`|`turned`, `row`"),
        (["whole", "same"], "`same`, `whole`|`whole`, `same`"),
        (["parameters"], "`parameters.0`, `parameters.1`"),
    ],
    ids=["row", "turned", "same", "parameters"],
)
def test_shared_memory_is_refused_by_name(framework: str, only: list[str], names: str) -> None:
    with pytest.raises(SharedMemoryError, match=f'tensors share memory.*({names}).*ties="copy"'):
        tensorkeep.load(saved(tied()), only=only, ties="error", framework=framework)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_nothing_shared_is_loaded(framework: str) -> None:
    whole = torch.arange(24.0).reshape(4, 6)
    state = {"even": whole[:, ::2], "odd": whole[:, 1::2], "none": whole[:0], "array": np.arange(3), "step": 1}
    loaded = tensorkeep.load(saved(state), ties="error", framework=framework)

    assert loaded["odd"].tolist() == whole[:, 1::2].tolist()
    assert loaded["step"] == 1


def test_an_array_in_two_places_is_shared() -> None:
    array = np.arange(3)
    content = pickle.dumps({"a": array, "b": array})
    with pytest.raises(SharedMemoryError, match="`a`, `b`"):
        tensorkeep.load(content, ties="error")
    copied = tensorkeep.load(content, ties="copy")
    copied["a"][0] = 9
    assert copied["b"].tolist() == [0, 1, 2]


def test_very_many_copies_are_refused() -> None:
    large = torch.zeros(2**20)
    content = saved([large] * 1000 + [large.expand(300, 2**20)])
    assert len(tensorkeep.load(content, framework="torch")) == 1001
    with pytest.raises(LimitError, match="many times the size"):
        tensorkeep.load(content, ties="copy")


def test_shards_are_copied(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"mp_rank_0{rank}").mkdir()
        weight = torch.full((2,), rank)
        torch.save({"a": weight, "b": weight}, tmp_path / f"mp_rank_0{rank}" / "model_optim_rng.pt")
    loaded = tensorkeep.load(tmp_path, ties="copy", framework="torch")["mp_rank_01/model_optim_rng.pt"]

    assert loaded["a"].data_ptr() != loaded["b"].data_ptr()
    assert loaded["b"].tolist() == [1, 1]
    with pytest.raises(SharedMemoryError, match=r"mp_rank_00.*`a`, `b`"):
        tensorkeep.load(tmp_path, ties="error")


def test_objects_in_a_distributed_checkpoint(tmp_path: Path) -> None:
    weight = torch.ones(2)
    dcp.save({"w": weight, "extra": (weight, weight)}, checkpoint_id=tmp_path / "dcp", no_dist=True)
    loaded = tensorkeep.load(tmp_path / "dcp", ties="copy", framework="torch")

    assert loaded["extra"][0].data_ptr() != loaded["extra"][1].data_ptr()
    with pytest.raises(SharedMemoryError):
        tensorkeep.load(tmp_path / "dcp", ties="error")
    assert tensorkeep.load(tmp_path / "dcp", only="w", ties="error")["w"].tolist() == [1, 1]


def test_another_word_is_refused() -> None:
    for content in (saved({"w": torch.ones(1)}), pickle.dumps(5)):
        with pytest.raises(UnsupportedError, match="ties 'keep' is invalid"):
            tensorkeep.load(content, ties="keep")
        with pytest.raises(UnsupportedError, match="ties 'keep' is invalid"):
            tensorkeep.open(content).load_tree(ties="keep")


@pytest.mark.parametrize("ties", ["share", "copy"])
@pytest.mark.parametrize("only", [None, "weights*"])
def test_a_framework_is_meant_for_arrays_too(tmp_path: Path, ties: str, only: str | None) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    state = {
        "weights": {"a": array, "same": array, "turned": array.T, "big": array.astype(">f4")},
        "lr": np.float32(1),
    }
    path = tmp_path / "m.pdparams"
    path.write_bytes(pickle.dumps(state, protocol=4))
    seen: list[tuple[int, int]] = []

    loaded = tensorkeep.load(
        path, only=only, ties=ties, framework="torch", progress=lambda done, total: seen.append((done, total))
    )

    weights = loaded["weights"]
    assert {type(tensor) for tensor in weights.values()} == {torch.Tensor}
    assert all(np.array_equal(weights[name].numpy(), state["weights"][name]) for name in weights)
    assert (weights["a"] is weights["same"]) == (ties == "share")
    assert seen[-1][0] == seen[-1][1] >= array.nbytes
    if only is None:
        assert type(loaded["lr"]) is np.float32


def test_as_it_was_saved_an_array_is_an_array(tmp_path: Path) -> None:
    torch.save({"t": torch.ones(2), "a": np.ones(2)}, tmp_path / "m.pt")

    with tensorkeep.open(tmp_path / "m.pt", framework="torch") as file:
        tree = file.load_tree()
    assert (type(tree["t"]), type(tree["a"])) == (torch.Tensor, np.ndarray)
    loaded = tensorkeep.load(tmp_path / "m.pt", framework="torch")
    assert (type(loaded["t"]), type(loaded["a"])) == (torch.Tensor, torch.Tensor)

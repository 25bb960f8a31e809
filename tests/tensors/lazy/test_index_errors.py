"""The error of an index that does not fit a tensor names the tensor and its file, however it is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep import combine
from tensorkeep.errors import SelectionError


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda file: file["norm.weight"][9], id="index"),
        pytest.param(lambda file: file["norm.weight"].cast("bf16")[9], id="cast"),
        pytest.param(lambda file: file.strip_prefix("no").add_prefix("no")["norm.weight"][9], id="view"),
        pytest.param(lambda file: file.load_parts({"norm.weight": 9}), id="load_parts"),
        pytest.param(lambda file: file.plan({"norm.weight": 9}), id="plan"),
        pytest.param(lambda file: file["norm.weight"].shard(2, 0, 2), id="dimension"),
        pytest.param(lambda file: file["norm.weight"].shard(0, 3, 2), id="rank"),
        pytest.param(lambda file: combine(np.add, file, file)["norm.weight"][9], id="computed"),
    ],
)
def test_an_index_that_does_not_fit_names_the_file(read: Callable[[Any], Any], tmp_path: Path) -> None:
    path = str(tmp_path / "model.safetensors")
    tensorkeep.save({"norm.weight": np.ones((4, 3), np.float32)}, path)
    with tensorkeep.open(path) as file, pytest.raises(SelectionError, match=r"^tensor `norm\.weight`: ") as caught:
        read(file)
    assert (caught.value.path, caught.value.tensor) == (path, "norm.weight")
    assert path in str(caught.value)


def test_an_index_that_does_not_fit_tensors_of_several_files_names_none(tmp_path: Path) -> None:
    for name in "ab":
        tensorkeep.save({"w": np.ones(3)}, tmp_path / f"{name}.safetensors")
    with tensorkeep.open(tmp_path / "a.safetensors") as a, tensorkeep.open(tmp_path / "b.safetensors") as b:
        summed = combine(np.add, a, b)
        with pytest.raises(SelectionError, match=r"^tensor `w`: index 3 is out of bounds") as caught:
            summed["w"][3]
    assert caught.value.path is None


def test_an_index_that_does_not_fit_names_files_of_other_formats(tmp_path: Path) -> None:
    h5 = tmp_path / "a.h5"
    with h5py.File(h5, "w") as file:
        file.create_dataset("w", data=np.ones((4, 3)), chunks=(1, 3), compression="gzip")
    torch.save({"w": torch.ones(4, 3).T}, tmp_path / "a.pt")
    for path in (h5, tmp_path / "a.pt"):
        with tensorkeep.open(path) as opened, pytest.raises(SelectionError) as caught:
            opened["w"][9]
        assert caught.value.path == str(path)


@pytest.mark.parametrize("framework", ["np", "pt"])
def test_the_slice_of_safe_open_notes_the_tensor_and_the_file(framework: str, tmp_path: Path) -> None:
    path = str(tmp_path / "model.safetensors")
    tensorkeep.save({"w": np.ones((4, 3))}, path)
    with tensorkeep.safe_open(path, framework) as file, pytest.raises(IndexError) as caught:
        file.get_slice("w")[9]
    assert caught.value.__notes__ == [f"The index was for tensor `w` of {path}"]

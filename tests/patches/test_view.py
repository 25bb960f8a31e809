"""Checkpoints seen through patches: the tensors that applying them would give, read in parts, whole, and saved."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep import LazyTensors, patches
from tensorkeep.errors import IntegrityError
from tests.support.patches.models import DTYPES, save, step

INDEXES = (..., np.s_[3:17:4], np.s_[::-3, 5:9], np.s_[[5, 1, 19]], np.s_[:, 2], 7, np.s_[2:2])


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> tuple[LazyTensors, LazyTensors, LazyTensors]:
    """A view of step 1 through two patches; step 3; the second patch."""
    folder = tmp_path_factory.mktemp("view")
    for number in (1, 2, 3):
        save(folder / str(number), number)
    for number in (2, 3):
        patches.make(folder / str(number - 1), folder / str(number), folder / f"{number}.safetensors")
    paths = (folder / "1", folder / "2.safetensors", folder / "3.safetensors")
    base, first, second = (tensorkeep.open(path) for path in paths)
    return patches.view(base, first, second), tensorkeep.open(folder / "3"), second


def test_a_view_has_the_tensors_names_and_metadata_of_the_new_checkpoint(
    opened: tuple[LazyTensors, LazyTensors, LazyTensors],
) -> None:
    view, new, _ = opened

    assert (list(view), view.metadata) == (list(new), new.metadata)
    for name, lazy in new.items():
        assert (view[name].dtype, view[name].shape) == (lazy.dtype, lazy.shape)
        assert view[name].load().tobytes() == lazy.load().tobytes()
    assert tensorkeep.diff(new, view).is_equal


@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_are_patched(opened: tuple[LazyTensors, LazyTensors, LazyTensors], dtype: str) -> None:
    view, new, _ = opened

    for index in INDEXES:
        assert view[dtype][index].tobytes() == new[dtype][index].tobytes()


def test_a_view_is_as_good_as_a_file(opened: tuple[LazyTensors, LazyTensors, LazyTensors], tmp_path: Path) -> None:
    view, new, _ = opened
    tensorkeep.save_checkpoint(view.select("float*").cast("bf16"), tmp_path / "cast")

    loaded = tensorkeep.load(tmp_path / "cast", framework="torch")
    other = pickle.loads(pickle.dumps(view["float32"]))
    in_torch = view["bfloat16"].with_framework("torch")[2:5]
    assert torch.equal(loaded["float64"], new["float64"].with_framework("torch").load().bfloat16())
    np.testing.assert_array_equal(other.load(), new["float32"].load())
    assert torch.equal(in_torch, new["bfloat16"].with_framework("torch")[2:5])
    assert torch.from_dlpack(view["int64"]).tolist() == new["int64"].load().tolist()


def test_packed_and_computed_tensors_are_patched(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, bits in (("old", 0), ("new", 1)):
        packed = rng.integers(0, 2**8, (6, 3), np.uint8) ^ bits
        values = {"f4": packed.view("float4_e2m1fn"), "w": np.arange(12.0).reshape(3, 4) + bits}
        tensorkeep.save(values, tmp_path / f"{name}.safetensors")
    old, new = (tensorkeep.open(tmp_path / f"{name}.safetensors") for name in ("old", "new"))
    patches.make(old.cast("f32"), new.cast("f32"), tmp_path / "cast.safetensors")
    patches.make(old, new, tmp_path / "plain.safetensors")

    plain = patches.view(old, tensorkeep.open(tmp_path / "plain.safetensors"))
    cast = patches.view(old.cast("f32"), tensorkeep.open(tmp_path / "cast.safetensors"))

    assert plain["f4"].load().tobytes() == new["f4"].load().tobytes()
    assert plain["f4"][1:3].tobytes() == new["f4"][1:3].tobytes()
    assert cast["w"][1:].tolist() == new["w"][1:].tolist()


def test_a_view_refuses_another_base_and_finds_damage(
    opened: tuple[LazyTensors, LazyTensors, LazyTensors], tmp_path: Path
) -> None:
    _, _, second = opened
    path = save(tmp_path / "model", 2, shards="1GB") / "model.safetensors"
    span = tensorkeep.open(path)["float32"].span
    data = bytearray(path.read_bytes())
    data[span.start] ^= 1
    path.write_bytes(data)

    with pytest.raises(IntegrityError, match="for another checkpoint"):
        patches.view(tensorkeep.open(save(tmp_path / "other", 1)), second)
    damaged = patches.view(tensorkeep.open(tmp_path / "model"), second)
    with pytest.raises(IntegrityError, match="not have the digest that the patch records"):
        damaged["float32"].load()
    with pytest.raises(IntegrityError, match="not what it should be"):
        tensorkeep.save(damaged, tmp_path / "out.safetensors")
    assert step(1)["same"].tolist() == damaged["same"].load().tolist()
    assert not (tmp_path / "out.safetensors").exists()

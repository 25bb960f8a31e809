"""Tensors that are not read are never lost without a word: by `load`, `diff`, `convert` and `export`."""

from __future__ import annotations

import warnings
from pathlib import Path

import h5py
import ml_dtypes
import numpy as np
import pytest

import tensorkeep
from tensorkeep.checkpoint import UnreadWarning
from tensorkeep.errors import DtypeError, TensorNotFoundError, UnsafeError, UnsupportedError

WEIGHTS = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.savez(
        tmp_path / "a.npz", **{"dense.w": WEIGHTS, "dense.v": WEIGHTS + 1, "x": np.ones(2), "t": np.array(["a"])}
    )
    return tmp_path / "a.npz"


def test_load_warns_of_what_it_leaves_out(path: Path) -> None:
    with pytest.warns(
        UnreadWarning, match=r"a\.npz: 2 objects left out.*`dense\.w`: <V2: bytes.*`dense\.v`"
    ) as caught:
        assert list(tensorkeep.load(path)) == ["x"]

    assert caught[0].filename == __file__


def test_load_warns_only_of_chosen_parts(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(tensorkeep.load(path, only="x")) == ["x"]


def test_a_part_that_is_not_read_is_an_error_with_the_reason(path: Path) -> None:
    with pytest.raises(TensorNotFoundError, match=r"not read as a tensor: <V2"):
        tensorkeep.load(path, only="dense.w")
    with pytest.raises(TensorNotFoundError, match=r"array of 1 string.*\.load\(\)"):
        tensorkeep.load(path, only="t")


def test_load_with_dtypes(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = tensorkeep.load(path, dtypes={"dense.w": "bfloat16", "dense.*": "float16"})

    assert loaded["dense.w"].tobytes() == WEIGHTS.tobytes()
    assert loaded["dense.w"].dtype == ml_dtypes.bfloat16
    assert loaded["dense.v"].dtype == np.float16


def test_convert_and_export_with_dtypes(path: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsafeError, match=r"2 objects not read.*dtypes=.*--dtype dense\.w=bfloat16") as caught:
        tensorkeep.convert(path, tmp_path / "a.safetensors")
    assert "run" not in str(caught.value)

    tensorkeep.convert(path, tmp_path / "a.safetensors", dtypes={"dense.*": "bf16"})
    tensorkeep.export(path, tmp_path / "a.gguf", dtypes={"dense.*": "bf16"})

    for name in ("a.safetensors", "a.gguf"):
        with tensorkeep.open(tmp_path / name) as file:
            assert file["dense.w"].dtype == "BF16"
            assert file["dense.w"].load().tobytes() == WEIGHTS.tobytes()


def test_dtypes_that_do_not_apply(path: Path, tmp_path: Path) -> None:
    with pytest.raises(TensorNotFoundError, match=r"no tensor without a dtype is called `x`.*a\.npz"):
        tensorkeep.load(path, dtypes={"x": "bf16"})
    with pytest.raises(DtypeError, match="size"):
        tensorkeep.load(path, dtypes={"dense.w": "f32"})
    tensorkeep.save({"w": np.ones(2)}, tmp_path / "b.safetensors")
    with pytest.raises(UnsupportedError, match=r"dtypes cannot be given.*b\.safetensors"):
        tensorkeep.open(tmp_path / "b.safetensors", dtypes={"w": "bf16"})


def test_diff_names_what_it_does_not_compare(path: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "b.npz", x=np.ones(2))

    found = tensorkeep.diff(path, tmp_path / "b.npz")
    chosen = tensorkeep.diff(path, tmp_path / "b.npz", only="x")

    assert found.not_compared_in_a == ("t", "dense.w", "dense.v")
    assert found.not_compared_in_b == ()
    assert "dense.w" in found._repr_html_()
    assert chosen.not_compared_in_a == ()


def test_a_filter_that_is_not_known(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("a", data=np.arange(1000), compression="szip")
        file["b"] = np.ones(3)

    with pytest.warns(UnreadWarning, match=r"a\.h5: 1 object left out.*`a`: .*szip .*engine=\"h5py\""):
        assert list(tensorkeep.load(tmp_path / "a.h5")) == ["b"]
    with pytest.raises(UnsafeError, match=r"1 object not read as a tensor.*engine=\"h5py\""):
        tensorkeep.convert(tmp_path / "a.h5", tmp_path / "a.safetensors")
    assert tensorkeep.load(tmp_path / "a.h5", engine="h5py")["a"].tolist() == list(range(1000))

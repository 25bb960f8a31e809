"""MLX's arrays; `test_libraries` runs this in a process of its own."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import DeviceError, DtypeError, LimitError
from tests.contracts.array_library import ArrayLibrary
from tests.libraries.memory import check_explained


class TestMlx(ArrayLibrary):
    framework = "mlx"
    largest_extent = 2**31 - 1


def test_devices(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    tensorkeep.save({"w": np.arange(3.0)}, path)

    for device in ("cpu", mx.cpu, mx.Device(mx.cpu, 0), None):
        loaded = tensorkeep.load(path, framework="mlx", device=device)["w"]
        assert loaded.dtype == mx.float64
        assert loaded.tolist() == [0, 1, 2]
    for device in ("cuda:0", "nonsense", *(() if mx.is_available(mx.gpu) else ("gpu", mx.gpu))):
        with pytest.raises(DeviceError, match=r"mlx has no device .*mx\.cpu"):
            tensorkeep.load(path, framework="mlx", device=device)


def test_what_mlx_lacks_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    import ml_dtypes

    path = tmp_path / "x.safetensors"
    tensorkeep.save({"w": np.ones(3, ml_dtypes.float8_e5m2), "empty": np.zeros((2**31, 0), np.float32)}, path)

    with tensorkeep.open(path, framework="mlx") as file:
        with pytest.raises(DtypeError, match=r"mlx has no dtype for F8_E5M2.*cast"):
            file["w"].load()
        assert file.cast("F32")["w"].load().tolist() == [1, 1, 1]
        with pytest.raises(LimitError, match=r"`empty` has a dimension that mlx cannot count"):
            file["empty"].load()


def test_arrays_not_yet_computed_and_of_any_strides_are_saved(tmp_path: Path) -> None:
    lazy = mx.arange(12, dtype=mx.bfloat16).reshape(3, 4) * 2
    tensorkeep.save({"a": lazy.T, "b": lazy[:, ::2]}, tmp_path / "x.safetensors")

    loaded = tensorkeep.load(tmp_path / "x.safetensors")
    assert loaded["a"].tolist() == lazy.T.tolist()
    assert loaded["b"].tolist() == lazy[:, ::2].tolist()


def test_a_lazy_tensor_of_mlx_is_exported(tmp_path: Path) -> None:
    tensorkeep.save({"w": np.arange(6, dtype=np.float32)}, tmp_path / "x.safetensors")

    with tensorkeep.open(tmp_path / "x.safetensors", framework="mlx") as file:
        assert np.from_dlpack(file["w"]).tolist() == list(range(6))


def test_what_is_explained_is_what_happens(tmp_path: Path) -> None:
    outcomes = check_explained("mlx", tmp_path / "x.safetensors")

    assert outcomes["copied"]

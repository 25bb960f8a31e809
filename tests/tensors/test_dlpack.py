"""DLPack: lazy tensors are exported, and what other libraries export is saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.errors import DtypeError, StateError, UnsupportedError


class Exporter:
    """A tensor of a library that tensorkeep does not know."""

    def __init__(self, array: Any, device: tuple[int, int] = (1, 0)) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


class OldExporter(Exporter):
    """One without the options of later versions of DLPack."""

    def __dlpack__(self) -> Any:  # type: ignore[override]
        return self.array.__dlpack__()


class NoCapsule:
    def __dlpack__(self, **options: Any) -> int:
        return 7


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tensors = {"f32": torch.arange(6.0).reshape(2, 3), "bf16": torch.ones(4, dtype=torch.bfloat16)}
    tensorkeep.save(tensors, tmp_path / "x.safetensors")
    return tmp_path / "x.safetensors"


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_a_lazy_tensor_is_exported(path: Path, framework: str) -> None:
    with tensorkeep.open(path, framework=framework) as file:
        lazy = file["f32"]
        assert lazy.__dlpack_device__() == (1, 0)
        assert np.array_equal(np.from_dlpack(lazy), np.arange(6.0).reshape(2, 3))
        assert torch.equal(torch.from_dlpack(lazy), torch.arange(6.0).reshape(2, 3))


def test_a_dtype_that_numpy_does_not_export_goes_through_torch(path: Path) -> None:
    with tensorkeep.open(path, framework="torch") as file:
        assert torch.from_dlpack(file["bf16"]).dtype == torch.bfloat16
        assert torch.from_dlpack(file.cast("f32")["bf16"]).tolist() == [1, 1, 1, 1]
    with tensorkeep.open(path) as file, pytest.raises(BufferError):
        np.from_dlpack(file["bf16"])


def test_an_exported_tensor_is_separate_from_others(path: Path) -> None:
    with tensorkeep.open(path, framework="torch") as file:
        first, second = torch.from_dlpack(file["f32"]), torch.from_dlpack(file["f32"])
        first += 1
        assert torch.equal(second, torch.arange(6.0).reshape(2, 3))


def test_what_a_library_exports_is_saved(tmp_path: Path) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    path = tmp_path / "x.safetensors"

    tensorkeep.save({"a": Exporter(array), "b": Exporter(array.T)}, path)
    assert {name: value.tolist() for name, value in tensorkeep.load(path).items()} == {
        "a": array.tolist(),
        "b": array.T.tolist(),
    }
    tensorkeep.save({"model": {"w": Exporter(array)}, "step": 3}, path)
    loaded = tensorkeep.load(path)
    assert loaded["step"] == 3
    assert np.array_equal(loaded["model"]["w"], array)
    tensorkeep.save({"a": Exporter(array)}, path, digests=False)
    assert tensorkeep.load(path, framework="torch")["a"].tolist() == array.tolist()
    tensorkeep.save_checkpoint({"a": Exporter(array), "b": torch.ones(2)}, tmp_path / "set")
    assert np.array_equal(tensorkeep.load(tmp_path / "set", framework="numpy")["a"], array)


def test_memory_that_several_export_is_stored_once(tmp_path: Path) -> None:
    array = np.zeros(10_000, np.float32)

    tensorkeep.save({"a": Exporter(array), "b": array}, tmp_path / "x.safetensors")

    assert (tmp_path / "x.safetensors").stat().st_size < 1.5 * array.nbytes


@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e8m0fnu"])
def test_dtypes_that_numpy_does_not_take_are_saved(dtype: str, is_old: bool, tmp_path: Path) -> None:
    tensor = torch.arange(1.0, 7.0).reshape(2, 3).to(getattr(torch, dtype))
    exporter = (OldExporter if is_old else Exporter)(tensor.T)

    tensorkeep.save({"w": exporter, "model": [exporter]}, tmp_path / "x.safetensors")

    loaded = tensorkeep.load(tmp_path / "x.safetensors", framework="torch")
    for saved in (loaded["w"], loaded["model"][0]):
        assert saved.dtype == tensor.dtype
        assert torch.equal(saved.view(torch.uint8), tensor.T.contiguous().view(torch.uint8))
    assert torch.equal(torch.from_dlpack(exporter).float(), tensor.T.float())


def test_what_numpy_cannot_take_is_refused(tmp_path: Path) -> None:
    for found in (Exporter(NoCapsule()), Exporter(torch.ones(3, device="meta"))):
        with pytest.raises(UnsupportedError, match=r"`w` cannot be taken through DLPack.*Exporter"):
            tensorkeep.save({"w": found}, tmp_path / "x.safetensors")
    with pytest.raises((DtypeError, UnsupportedError, StateError)):
        tensorkeep.save({"w": Exporter(np.zeros(3, "M8[s]"))}, tmp_path / "x.safetensors")
    assert not (tmp_path / "x.safetensors").exists()

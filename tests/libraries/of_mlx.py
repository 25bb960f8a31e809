"""MLX's arrays; `test_libraries` runs this in a process of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import mlx.core as mx
import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import (
    DeviceError,
    DtypeError,
    IntegrityError,
    LimitError,
    SourceChangedError,
    UnsupportedError,
)
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


def arrays_of_many_sizes() -> dict[str, np.ndarray]:
    """Return arrays of all dtypes that MLX has, which it copies or which are read into its memory."""
    shapes = {"empty": (0, 4), "scalar": (), "small": (3, 5), "large": (129, 257), "flat": (2**17 + 3,)}
    dtypes = ("float32", "bfloat16", "float64", "complex64", "bool", "uint8", "int64", "float16")
    random = np.random.default_rng(0)
    return {
        f"{size}.{dtype}": random.integers(0, 2, shape).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        for size, shape in shapes.items()
        for dtype in dtypes
    }


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_small_and_large_arrays_are_what_was_saved_in_its_order(tmp_path: Path, backend: str) -> None:
    path = tmp_path / "x.safetensors"
    saved = arrays_of_many_sizes()
    tensorkeep.save(saved, path)

    with tensorkeep.open(path, framework="mlx", backend=backend, verify=True) as file:
        loaded, again, names = file.load(), file.load(), list(file)

    assert list(loaded) == names
    for name, array in saved.items():
        loaded[name] += loaded[name]  # a new array, or the same memory: the other load has its own
        assert again[name].shape == array.shape
        assert again[name].tolist() == array.tolist()


def test_each_load_has_memory_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    tensorkeep.save({"w": np.zeros(2**18, np.float32)}, path)

    first, second = (tensorkeep.load(path, framework="mlx")["w"] for _ in range(2))
    np.asarray(first)[:] = 7

    assert first.sum().item() == 7 * 2**18
    assert second.sum().item() == 0
    assert tensorkeep.load(path)["w"].sum() == 0


def test_an_array_is_not_made_of_a_damaged_or_shortened_file(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    tensorkeep.save({"w": np.zeros(2**18, np.float32)}, path, digests=True)
    content = path.read_bytes()

    with tensorkeep.open(path, framework="mlx") as file:
        path.write_bytes(content[: len(content) // 2])
        with pytest.raises(SourceChangedError, match="shorter"):
            file.load()
    path.write_bytes(content[:-1] + b"\1")
    with tensorkeep.open(path, framework="mlx", verify=True) as file, pytest.raises(IntegrityError, match="`w`"):
        file.load()


def test_what_a_thread_has_loaded_is_used_in_others(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    saved = arrays_of_many_sizes()
    tensorkeep.save(saved, path)

    with ThreadPoolExecutor(1) as thread:
        loaded = thread.submit(tensorkeep.load, path, framework="mlx").result()

    for name, array in saved.items():
        assert (
            np.asarray(loaded[name].astype(mx.float32, stream=mx.cpu)).sum() == array.astype("complex64").sum().real
        )


def test_many_threads_load_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    tensorkeep.save({f"w{number}": np.full(2**17, number, np.float32) for number in range(8)}, path)

    with ThreadPoolExecutor(8) as threads:
        loads = list(threads.map(lambda _: tensorkeep.load(path, framework="mlx"), range(16)))

    assert all(loaded[f"w{number}"].min().item() == number for loaded in loads for number in range(8))


def test_an_array_that_only_another_thread_can_compute_is_refused(tmp_path: Path) -> None:
    described = mx.ones(3) * 2
    with (
        ThreadPoolExecutor(1) as thread,
        pytest.raises(UnsupportedError, match=r"`w` could not be computed.*mx\.eval"),
    ):
        thread.submit(tensorkeep.save, {"w": described}, tmp_path / "x.safetensors").result()

    mx.eval(described)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(tensorkeep.save, {"w": described}, tmp_path / "x.safetensors").result()
    assert tensorkeep.load(tmp_path / "x.safetensors")["w"].tolist() == [2, 2, 2]


def test_a_lazy_tensor_of_mlx_is_exported(tmp_path: Path) -> None:
    tensorkeep.save({"w": np.arange(6, dtype=np.float32)}, tmp_path / "x.safetensors")

    with tensorkeep.open(tmp_path / "x.safetensors", framework="mlx") as file:
        assert np.from_dlpack(file["w"]).tolist() == list(range(6))


def test_what_is_explained_is_what_happens(tmp_path: Path) -> None:
    outcomes = check_explained("mlx", tmp_path / "x.safetensors")

    assert outcomes["copied"]

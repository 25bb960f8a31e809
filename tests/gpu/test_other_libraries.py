"""JAX and CuPy on a GPU: values, saves, and tensors that they take over from torch by DLPack.

These tests are skipped, with the reason, where a library is not installed or sees no GPU.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tensorkeep
from tests.gpu.device import DEVICE, IS_STAND_IN

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or JAX leaves no memory for torch

JAX_DEVICE = "cpu:0" if IS_STAND_IN else "gpu:0"


def state(*more: Any) -> dict[str, Any]:
    """Return arrays of dtypes that all libraries have, and of more."""
    random = np.random.default_rng(1)
    large = {f"{n}": random.standard_normal((900, 1000)).astype(np.float32) for n in range(3)}
    halves = {f"half {n}": random.standard_normal(n).astype(np.float16) for n in range(1, 200)}
    numbers = {
        "ints": np.arange(999, dtype=np.int32),
        "flags": np.array([True, False]),
        "one": np.array(3, np.float32),
    }
    return large | halves | numbers | {f"{dtype}": np.arange(7).astype(dtype) for dtype in more}


@pytest.fixture
def jax() -> Any:
    found = pytest.importorskip("jax", reason="JAX is not installed")
    try:
        found.local_devices(backend=JAX_DEVICE.partition(":")[0])
    except RuntimeError as error:
        pytest.skip(f"JAX sees no GPU: {error}")
    return found


@pytest.fixture
def cupy() -> Any:
    found = pytest.importorskip("cupy", reason="CuPy is not installed", exc_type=ImportError)
    try:
        found.cuda.runtime.getDeviceCount()
    except found.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(f"CuPy sees no GPU: {error}")
    return found


def equal(loaded: dict[str, Any], saved: dict[str, Any], as_numpy: Any = np.asarray) -> bool:
    return loaded.keys() == saved.keys() and all(
        loaded[name].shape == array.shape
        and np.asarray(as_numpy(loaded[name])).dtype == array.dtype
        and np.asarray(as_numpy(loaded[name])).tobytes() == array.tobytes()
        for name, array in saved.items()
    )


def test_jax_has_the_same_bits(tmp_path: Path, jax: Any) -> None:
    saved = state(ml_dtypes.bfloat16)
    tensorkeep.save(saved, tmp_path / "x.safetensors")

    loaded = tensorkeep.load(tmp_path / "x.safetensors", framework="jax", device=JAX_DEVICE)
    tensorkeep.save(loaded, tmp_path / "again.safetensors")

    assert equal(loaded, saved)
    assert {device.platform for array in loaded.values() for device in array.devices()} == {JAX_DEVICE[:3]}
    assert equal(tensorkeep.load(tmp_path / "again.safetensors", framework="numpy"), saved)


def test_jax_takes_over_tensors_of_torch(tmp_path: Path, jax: Any) -> None:
    saved = state()
    tensorkeep.save(saved, tmp_path / "x.safetensors")

    tensors = tensorkeep.load(tmp_path / "x.safetensors", framework="torch", device=DEVICE)
    pointers = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    taken = {name: jax.dlpack.from_dlpack(tensors.pop(name)) for name in list(tensors)}
    del tensors
    tensorkeep.load(tmp_path / "x.safetensors", framework="torch", device=DEVICE)  # elsewhere in memory

    assert equal(taken, saved)
    assert taken["0"].unsafe_buffer_pointer() == pointers["0"]


def test_cupy_has_the_same_bits(tmp_path: Path, cupy: Any) -> None:
    saved = state()
    tensorkeep.save(saved, tmp_path / "x.safetensors")

    loaded = tensorkeep.load(tmp_path / "x.safetensors", framework="cupy", device="cuda:0")
    tensorkeep.save(loaded, tmp_path / "again.safetensors")

    assert equal(loaded, saved, cupy.asnumpy)
    assert equal(tensorkeep.load(tmp_path / "again.safetensors", framework="numpy"), saved)


def test_cupy_takes_over_tensors_of_torch(tmp_path: Path, cupy: Any) -> None:
    saved = state()
    tensorkeep.save(saved, tmp_path / "x.safetensors")

    tensors = tensorkeep.load(tmp_path / "x.safetensors", framework="torch", device=DEVICE)
    pointers = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    taken = {name: cupy.from_dlpack(tensors.pop(name)) for name in list(tensors)}
    del tensors
    tensorkeep.load(tmp_path / "x.safetensors", framework="torch", device=DEVICE)  # elsewhere in memory

    assert equal(taken, saved, cupy.asnumpy)
    assert taken["0"].data.ptr == pointers["0"]

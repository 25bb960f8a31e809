"""jax's arrays; `test_libraries` runs this in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import tensorkeep
from tensorkeep.arrays.jax import memory
from tensorkeep.errors import DeviceError, DtypeError, StateError, UnsupportedError
from tests.contracts.array_library import ArrayLibrary
from tests.libraries.jax_devices import CPUS
from tests.libraries.memory import ADDRESSES, check_explained, over_memory
from tests.support import ROOT


class TestJax(ArrayLibrary):
    framework = "jax"


class TestJaxWith64Bits(ArrayLibrary):
    framework = "jax"

    @pytest.fixture(autouse=True)
    def bits(self) -> Any:
        with jax.enable_x64(True):
            yield


@pytest.mark.parametrize("offset", ADDRESSES)
@pytest.mark.parametrize("dtype", ["F32", "BF16"])
def test_memory_is_shared_at_multiples_of_64(dtype: str, offset: int) -> None:
    array, is_shared = over_memory("jax", dtype, offset)

    assert is_shared == (offset % 64 == 0)
    assert float(array.astype(jnp.float32).sum()) == 24


def test_jax_without_its_cpu_loads_to_the_devices_that_it_has(tmp_path: Path) -> None:
    tensorkeep.save({"a": np.arange(3, dtype=np.float32)}, tmp_path / "a.safetensors")
    command = [sys.executable, "-m", "tests.support.jax.without_cpu", str(tmp_path / "a.safetensors")]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)

    assert done.stdout.splitlines() == ["jax [0.0, 1.0, 2.0]", "flax [0.0, 1.0, 2.0]"], done.stderr[-2000:]


def test_the_fast_way_to_share_memory_exists_in_this_version_of_jax() -> None:
    assert memory._put is not None
    assert type(jnp.zeros(1)) is memory.ARRAY_CLASS


def test_without_the_fast_way_everything_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_put", None)

    array, is_shared = over_memory("jax", "F32", 64)

    assert is_shared
    assert float(array.sum()) == 24
    assert not array.committed


@pytest.mark.parametrize("dtype", ["float64", "int64", "uint64"])
def test_64_bits_must_be_enabled(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "x.safetensors"
    tensorkeep.save({"w": np.array([1, 2], dtype), "v": np.ones(3, np.float32)}, path)

    like = {"w": jax.ShapeDtypeStruct((2,), dtype), "v": jax.ShapeDtypeStruct((3,), "float32")}
    loads = (
        lambda: tensorkeep.load(path, framework="jax"),
        lambda: tensorkeep.open(path, framework="jax")["w"][:1],
        lambda: tensorkeep.jax.load(path, like=like),
    )
    for load in loads:
        with pytest.raises(DtypeError, match=r"jax has no dtype for [FIU]64.*jax_enable_x64") as caught:
            load()
        assert (caught.value.tensor, caught.value.path) == ("w", str(path))
    with jax.enable_x64(True):
        assert tensorkeep.load(path, framework="jax")["w"].dtype == dtype
    with tensorkeep.open(path, framework="jax") as file:
        assert file["v"].load().dtype == "float32"
    converted = tensorkeep.load(path, framework="flax")["w"]
    assert converted.dtype == jnp.asarray(np.ones(1, dtype)).dtype
    assert converted.tolist() == [1, 2]


def test_f64_is_cast_without_64_bits(tmp_path: Path) -> None:
    tensorkeep.save({"w": np.array([1.5, 1e300])}, tmp_path / "x.safetensors")

    with tensorkeep.open(tmp_path / "x.safetensors", framework="jax") as file:
        assert file.cast("F32")["w"].load().tolist() == [1.5, float("inf")]
        assert file.cast("F32").load()["w"].tolist() == [1.5, float("inf")]


def test_devices_and_shardings(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    tensorkeep.save({"w": np.arange(8, dtype=np.float32)}, path)

    for device, expected in (("cpu:1", CPUS[1]), (CPUS[2], CPUS[2]), (None, CPUS[0]), ("cpu", CPUS[0])):
        assert tensorkeep.load(path, framework="jax", device=device)["w"].devices() == {expected}
    assert not tensorkeep.load(path, framework="jax")["w"].committed  # free to move to a GPU
    sharding = NamedSharding(Mesh(np.array(CPUS), ("x",)), PartitionSpec("x"))
    sharded = tensorkeep.load(path, framework="jax", device=sharding)["w"]
    assert sharded.sharding == sharding
    assert sharded.tolist() == list(range(8))
    tensorkeep.save({"w": sharded}, tmp_path / "again.safetensors")
    assert tensorkeep.load(tmp_path / "again.safetensors", framework="numpy")["w"].tolist() == list(range(8))
    for device in ("gpu", "cpu:9", "nonsense", "/CPU:0", ""):
        with pytest.raises(DeviceError, match=r"jax has no device .* jax\.Device"):
            tensorkeep.load(path, framework="jax", device=device)


def test_one_array_under_two_names_is_stored_once(tmp_path: Path) -> None:
    array = jnp.arange(1000, dtype=jnp.float32)
    tensorkeep.save({"a": array, "b": array}, tmp_path / "x.safetensors")

    assert (tmp_path / "x.safetensors").stat().st_size < 2 * array.nbytes
    loaded = tensorkeep.load(tmp_path / "x.safetensors")
    assert {name: type(value) for name, value in loaded.items()} == {"a": type(array), "b": type(array)}
    assert all(np.array_equal(value, array) for value in loaded.values())
    assert loaded["a"] is loaded["b"]


def test_what_has_no_bytes_is_refused(tmp_path: Path) -> None:
    def traced(x: Any) -> Any:
        with pytest.raises((StateError, UnsupportedError)):
            tensorkeep.save({"w": x}, tmp_path / "x.safetensors")
        return x

    jax.jit(traced)(jnp.zeros(3))
    deleted = jnp.zeros(3)
    deleted.delete()
    with pytest.raises((StateError, UnsupportedError), match="deleted"):
        tensorkeep.save({"w": deleted}, tmp_path / "x.safetensors")
    assert not (tmp_path / "x.safetensors").exists()


def test_saving_a_loaded_file_gives_its_bytes(tmp_path: Path) -> None:
    tensors = {"w": np.ones((3, 5), np.float32), "b": np.arange(7, dtype=np.int32)}
    tensorkeep.save(tensors, tmp_path / "x.safetensors")

    loaded = tensorkeep.load(tmp_path / "x.safetensors", framework="jax")

    assert {name: np.asarray(value).tobytes() for name, value in loaded.items()} == {
        name: value.tobytes() for name, value in tensors.items()
    }


def test_computing_with_a_loaded_array_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    tensorkeep.save({"w": np.ones(1 << 20, np.float32)}, path)
    before = path.read_bytes()

    array = tensorkeep.load(path, framework="jax")["w"]
    result = jax.jit(lambda x: x * 2, donate_argnums=0)(array)

    assert float(result[0]) == 2
    assert path.read_bytes() == before


def test_a_lazy_tensor_goes_to_jax_through_dlpack(tmp_path: Path) -> None:
    tensorkeep.save({"w": np.arange(6, dtype=np.float32)}, tmp_path / "x.safetensors")

    for framework in ("numpy", "jax"):
        with tensorkeep.open(tmp_path / "x.safetensors", framework=framework) as file:
            assert jax.dlpack.from_dlpack(file["w"]).tolist() == list(range(6))
            assert np.from_dlpack(file["w"]).tolist() == list(range(6))


def test_what_is_explained_is_what_happens(tmp_path: Path) -> None:
    outcomes = check_explained("jax", tmp_path / "x.safetensors")

    assert outcomes["shared"]

"""Paddle's tensors; `test_libraries` runs this in a process of its own."""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
from pathlib import Path

import numpy as np
import paddle
import pytest

import tensorkeep
from tensorkeep.arrays.paddle import _dense
from tensorkeep.errors import DeviceError, DtypeError, LimitError, StateError
from tests.contracts.array_library import ArrayLibrary
from tests.libraries.memory import ADDRESSES, check_explained, over_memory


class TestPaddle(ArrayLibrary):
    framework = "paddle"


@pytest.mark.parametrize("offset", ADDRESSES)
@pytest.mark.parametrize("dtype", ["F32", "BF16"])
def test_memory_is_shared_at_any_address(dtype: str, offset: int) -> None:
    tensor, is_shared = over_memory("paddle", dtype, offset)

    assert is_shared
    assert float(tensor.cast("float32").sum()) == 24


def test_two_tensors_at_one_address_are_freed_one_after_the_other(tmp_path: Path) -> None:
    tensorkeep.save({"w": np.ones(100, np.float32)}, tmp_path / "x.safetensors")

    with tensorkeep.safe_open(tmp_path / "x.safetensors", framework="paddle") as file:
        first, second = file.get_tensor("w"), file.get_tensor("w")
        del first
        gc.collect()
        assert float(second.sum()) == 100
        del second
        gc.collect()


def test_devices(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    tensorkeep.save({"w": np.arange(3.0)}, path)

    for device in ("cpu", paddle.CPUPlace(), None):
        assert tensorkeep.load(path, framework="paddle", device=device)["w"].place.is_cpu_place()
    for device in ("gpu:0", "nonsense", "/CPU:7"):
        with pytest.raises(DeviceError, match=r"paddle has no device .*cpu"):
            tensorkeep.load(path, framework="paddle", device=device)


def test_what_paddle_lacks_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    tensorkeep.save({"w": np.ones(3, np.uint16), "deep": np.zeros((1,) * 10, np.float32)}, path)

    with tensorkeep.open(path, framework="paddle") as file:
        with pytest.raises(DtypeError, match=r"paddle has no dtype for U16"):
            file["w"].load()
        with pytest.raises(LimitError, match=r"`deep` has more dimensions than paddle can hold"):
            file["deep"].load()


def test_a_layers_parameters_are_saved(tmp_path: Path) -> None:
    layer = paddle.nn.Linear(3, 2)
    tensorkeep.save({name: value.detach() for name, value in layer.state_dict().items()}, tmp_path / "x.safetensors")

    loaded = tensorkeep.load(tmp_path / "x.safetensors")

    other = paddle.nn.Linear(3, 2)
    other.set_state_dict(loaded)
    assert all(
        np.array_equal(ours.numpy(), theirs.numpy())
        for ours, theirs in zip(other.parameters(), layer.parameters(), strict=True)
    )


def test_a_lazy_tensor_goes_to_paddle_through_dlpack(tmp_path: Path) -> None:
    tensorkeep.save({"w": np.arange(6, dtype=np.float32)}, tmp_path / "x.safetensors")

    with tensorkeep.open(tmp_path / "x.safetensors", framework="paddle") as file:
        assert file["w"].__dlpack_device__() == (1, 0)
    with tensorkeep.open(tmp_path / "x.safetensors") as file:
        assert paddle.utils.dlpack.from_dlpack(file["w"].__dlpack__()).tolist() == list(range(6))


IMPORTED_AGAIN = """
import sys
import paddle
import tensorkeep

with tensorkeep.open(sys.argv[1], framework="paddle") as file:
    print({name: paddle.from_dlpack(lazy).numpy().tolist() for name, lazy in file.items()})
"""


def test_paddle_takes_and_frees_what_was_opened_for_paddle(tmp_path: Path) -> None:
    dtypes = ("float32", "uint32", "uint64", "bool", "int8")
    tensorkeep.save({dtype: np.ones(2, dtype) for dtype in dtypes}, tmp_path / "x.safetensors")
    command = [sys.executable, "-c", IMPORTED_AGAIN, str(tmp_path / "x.safetensors")]

    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    assert ast.literal_eval(done.stdout) == {dtype: [1, 1] for dtype in dtypes}, done.stderr[-2000:]


def test_without_the_fast_way_everything_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _dense._init is not None, "this version of Paddle has it"
    fast, _ = over_memory("paddle", "BF16", 64)
    monkeypatch.setattr(_dense, "_init", None)

    slow, is_shared = over_memory("paddle", "BF16", 64)

    assert is_shared
    for name in ("dtype", "shape", "stop_gradient", "persistable"):
        assert getattr(slow, name) == getattr(fast, name)
    assert str(slow.place) == str(fast.place)
    assert float(fast.astype("float32").sum()) == float(slow.astype("float32").sum()) == 24


def test_what_is_explained_is_what_happens(tmp_path: Path) -> None:
    outcomes = check_explained("paddle", tmp_path / "x.safetensors")

    assert outcomes["shared"]


def test_what_has_no_place_in_a_file_is_refused_with_what_has(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    number = paddle.to_tensor(np.array([1 + 2j]))
    with pytest.raises(StateError, match=r"'w' is not data.*numpy\(\).*complex64"):
        tensorkeep.save({"w": number}, path)
    for advised in (number.numpy(), number.astype("complex64")):
        tensorkeep.save({"w": advised}, path)
        assert tensorkeep.load(path)["w"].tolist() == [1 + 2j]

    coo = paddle.sparse.sparse_coo_tensor([[1]], [2.5], [3])
    csr = paddle.sparse.sparse_csr_tensor([0, 1, 1], [0], [2.5], [2, 3])
    for sparse, names in ((coo, ("indices", "values")), (csr, ("crows", "cols", "values"))):
        with pytest.raises(StateError, match=names[0]):
            tensorkeep.save({"w": sparse}, path)
        tensorkeep.save({name: getattr(sparse, name)() for name in names}, path)
        assert tensorkeep.load(path)["values"].tolist() == [2.5]

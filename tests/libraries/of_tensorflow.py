"""TensorFlow's tensors; `test_libraries` runs this in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensorkeep
from tensorkeep.errors import DeviceError, StateError, UnsupportedError
from tests.contracts.array_library import ArrayLibrary
from tests.libraries.memory import ADDRESSES, check_explained, over_memory


class TestTensorflow(ArrayLibrary):
    framework = "tensorflow"

    def transposed(self, tensor: Any) -> Any:
        try:
            return tf.transpose(tensor)
        except tf.errors.NotFoundError:  # no kernel for this dtype
            return tf.constant(tensor.numpy().T)


@pytest.mark.parametrize("offset", ADDRESSES)
@pytest.mark.parametrize("dtype", ["F32", "BF16"])
def test_memory_is_shared_only_where_kernels_can_use_it(dtype: str, offset: int) -> None:
    tensor, is_shared = over_memory("tensorflow", dtype, offset)

    assert is_shared == (offset % 64 == 0)
    assert float(tf.reduce_sum(tf.cast(tensor, tf.float32) * 2)) == 2 * 24  # a kernel that aborts otherwise


def test_devices(tmp_path: Path) -> None:
    tensorkeep.save({"w": np.arange(3.0)}, tmp_path / "x.safetensors")

    for device in ("cpu", "/CPU:0", "CPU:0", None, tf.config.list_logical_devices()[0]):
        loaded = tensorkeep.load(tmp_path / "x.safetensors", framework="tf", device=device)
        assert loaded["w"].device.endswith("/device:CPU:0")
    for device in ("/GPU:0", "nonsense", "/CPU:7", ""):
        with pytest.raises(DeviceError, match=r"tensorflow has no device .* /device:CPU:0"):
            tensorkeep.load(tmp_path / "x.safetensors", framework="tf", device=device)


def test_what_a_function_traces_has_no_bytes(tmp_path: Path) -> None:
    @tf.function
    def traced(x: Any) -> Any:
        with pytest.raises((StateError, UnsupportedError)):
            tensorkeep.save({"w": x}, tmp_path / "x.safetensors")
        return x

    traced(tf.zeros(3))


def test_a_lazy_tensor_goes_to_tensorflow_through_dlpack(tmp_path: Path) -> None:
    tensorkeep.save({"w": np.arange(6, dtype=np.float32)}, tmp_path / "x.safetensors")

    for framework in ("numpy", "tensorflow"):
        with tensorkeep.open(tmp_path / "x.safetensors", framework=framework) as file:
            assert file["w"].__dlpack_device__() == (1, 0)
            assert tf.experimental.dlpack.from_dlpack(file["w"].__dlpack__()).numpy().tolist() == list(range(6))


def test_what_is_explained_is_what_happens(tmp_path: Path) -> None:
    outcomes = check_explained("tensorflow", tmp_path / "x.safetensors")

    assert outcomes["shared"]


@pytest.mark.parametrize(
    ("tensor", "advice", "as_advised"),
    [
        (tf.constant([1 + 2j], tf.complex128), "numpy", lambda tensor: tensor.numpy()),
        (tf.Variable(tf.constant([1 + 2j], tf.complex128)), "cast it to complex64", lambda tensor: tensor.numpy()),
        (tf.constant([b"a", b"bc"]), "numpy", lambda tensor: tensor.numpy()),
        (tf.quantization.quantize([1.0], 0, 1, tf.qint8).output, "tf.int8", lambda q: tf.bitcast(q, tf.int8)),
    ],
)
def test_what_has_no_place_in_a_file_is_refused_with_what_has(
    tensor: Any, advice: str, as_advised: Any, tmp_path: Path
) -> None:
    with pytest.raises(StateError, match=f"'w' is not data.*{advice}"):
        tensorkeep.save({"w": tensor}, tmp_path / "x.safetensors")

    advised = as_advised(tensor)
    tensorkeep.save({"w": advised}, tmp_path / "x.safetensors")
    assert np.array_equal(tensorkeep.load(tmp_path / "x.safetensors")["w"], advised)

"""Dense tensors of TensorFlow, on any device.

TensorFlow takes memory at any address through DLPack, but its kernels end the process if it is not a multiple of 64
(`CheckTypeAndIsAligned`). NumPy exports no bfloat16 through DLPack, so its bits go as integers. Narrower floats have
no such way: they are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from tensorkeep.arrays._by_numpy import ArraysByNumpy
from tensorkeep.dtypes import BY_NUMPY, DType
from tensorkeep.errors import DeviceError, UnsupportedError

EAGER: Final[Any] = tf.__internal__.EagerTensor
_OF_NUMPY: Final = 1
"""`numpy.dtype.isbuiltin` of NumPy's own dtypes."""

_VARIABLES: Final = (tf.Variable,)


def _is_plain(tensor: Any) -> bool:
    return tensor.dtype.name in BY_NUMPY


class TensorflowArrays(ArraysByNumpy):
    """Dense tensors of TensorFlow on one device: `DenseArrays`."""

    framework: ClassVar[str] = "tensorflow"
    plain_classes: Final[Mapping[type, Callable[[Any], bool]]] = {EAGER: _is_plain, ResourceVariable: _is_plain}

    def __init__(self, device: Any = "cpu") -> None:
        self._device = None if device is None or str(device).lower() == "cpu" else _checked(device)
        self._is_free = device is None and bool(tf.config.list_logical_devices("GPU"))
        self.is_on_host = not self._is_free and (self._device is None or "CPU" in self._device)

    def place(self, tensors: dict[str, Any]) -> dict[str, Any]:
        """Copy tensors to the device; without one, to where TensorFlow puts new tensors."""
        if self._device is None and not self._is_free:
            return tensors
        with tf.device(self._device) if self._device else nullcontext():
            return {name: tf.identity(tensor) for name, tensor in tensors.items()}

    def has_dtype(self, dtype: DType) -> bool:
        """Say whether TensorFlow has a dtype."""
        try:
            return bool(dtype.numpy) and bool(tf.as_dtype(self.numpy_dtype(dtype)))
        except TypeError:
            return False

    def memory_of(self, dtype: DType) -> Literal["shared", "copied", "converted"]:
        """Say whether a tensor shares the memory it is made of: not if it is of a narrow float."""
        kept = super().memory_of(dtype)
        return "copied" if kept == "shared" and not dtype.is_in_numpy and dtype.name != "BF16" else kept

    def as_numpy(self, tensor: Any, name: str) -> npt.NDArray[Any]:
        """Return an array over the memory of a tensor on the CPU; others are copied."""
        if isinstance(tensor, _VARIABLES):
            tensor = tensor.value()
        if not isinstance(tensor, EAGER):
            raise UnsupportedError(
                f"tensor `{name}` has no bytes of its own here",
                tensor=name,
                expected="an eager tensor",
                found=type(tensor).__name__,
                hint="Save what a tf.function returns, not what it traces",
            )
        if "CPU" not in tensor.device:
            return np.asarray(tensor.numpy())
        if tensor.dtype == tf.bfloat16:
            return np.asarray(memoryview(tf.bitcast(tensor, tf.uint16))).view(tf.bfloat16.as_numpy_dtype)
        try:
            return np.asarray(memoryview(tensor))
        except ValueError:  # a dtype that Python's buffers do not have
            return np.asarray(tensor.numpy())

    def _adopt(self, arrays: dict[str, npt.NDArray[Any]]) -> dict[str, Any]:
        from_dlpack = tf.experimental.dlpack.from_dlpack
        made = {}
        for name, array in arrays.items():
            if array.size and array.dtype.isbuiltin == _OF_NUMPY:
                made[name] = from_dlpack(array.__dlpack__())
            elif array.size and array.dtype == tf.bfloat16.as_numpy_dtype:
                made[name] = tf.bitcast(from_dlpack(array.view(np.uint16).__dlpack__()), tf.bfloat16)
            else:
                made[name] = tf.convert_to_tensor(array)
        return made


def _checked(device: Any) -> str:
    """Return the full name of a device, or refuse one that is not here."""
    here = [known.name for known in tf.config.list_logical_devices()]
    name = str(device.name if isinstance(device, tf.config.LogicalDevice) else device)
    try:
        asked = tf.DeviceSpec.from_string(name if name.startswith("/") else f"/{name}")
        wanted = f"/device:{(asked.device_type or '').upper()}:{asked.device_index or 0}"
    except (ValueError, AttributeError):
        wanted = ""
    if wanted not in here:
        raise DeviceError(f"tensorflow has no device {str(device)!r:.100} here", expected=" or ".join(here))
    return wanted

"""Dense tensors of Paddle, on any device.

Memory goes to Paddle through DLPack. Its own `frombuffer` remembers memory by its address, and ends the process when
the second of two tensors at one address is freed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import paddle
from paddle.base.framework import EagerParamBase
from paddle.utils.dlpack import from_dlpack

from tensorkeep.arrays._by_numpy import ArraysByNumpy
from tensorkeep.arrays.in_memory import bytes_at
from tensorkeep.dtypes import BY_NUMPY, DType
from tensorkeep.errors import DeviceError, DtypeError, LimitError, UnsupportedError

_MAX_NDIM: Final = 9
_DTYPES: Final = {
    name: found
    for name in BY_NUMPY
    if name != "uint16" and isinstance(found := getattr(paddle, name, None), paddle.dtype)
}
"""NumPy's names to Paddle's dtypes; what Paddle calls uint16 is bfloat16."""

_OF_NUMPY: Final = 1
"""`numpy.dtype.isbuiltin` of NumPy's own dtypes."""

_init: Final = None if paddle.is_compiled_with_cuda() else getattr(paddle, "original_init", None)
"""What `paddle.Tensor` does once it has looked at its arguments, for three times as long; None if not known here."""

_view: Final = getattr(getattr(paddle, "_C_ops", None), "view_dtype", paddle.view)
"""What `paddle.Tensor.view` calls for a dtype, which takes a third of the time."""

_WITHOUT_KERNELS: Final = {"uint32", "uint64"}
_NAMES: Final = {found: name for name, found in _DTYPES.items()}


def _is_plain(tensor: Any) -> bool:
    return tensor.dtype in _NAMES and tensor.is_dense() and _has_memory(tensor)


def _has_memory(tensor: Any) -> bool:
    return not tensor.size or bool(tensor._is_initialized())


class PaddleArrays(ArraysByNumpy):
    """Dense tensors of Paddle on one device: `DenseArrays`."""

    framework: ClassVar[str] = "paddle"
    plain_classes: Final[Mapping[type, Callable[[Any], bool]]] = {paddle.Tensor: _is_plain, EagerParamBase: _is_plain}

    def __init__(self, device: Any = "cpu") -> None:
        self._device = None if device is None or str(device) in {"cpu", "Place(cpu)"} else device
        self.is_on_host = self._device is None

    def place(self, tensors: dict[str, Any]) -> dict[str, Any]:
        """Move tensors to the device."""
        if self._device is None:
            return tensors
        try:
            return {name: tensor.to(self._device) for name, tensor in tensors.items()}
        except (ValueError, RuntimeError) as error:
            raise DeviceError(
                f"paddle has no device {str(self._device)!r:.100} here",
                expected=" or ".join({"cpu": None} | dict.fromkeys(paddle.device.get_available_device())),
            ) from error

    def has_dtype(self, dtype: DType) -> bool:
        """Say whether Paddle has a dtype."""
        return dtype.numpy in _DTYPES

    def as_numpy(self, tensor: Any, name: str) -> npt.NDArray[Any]:
        """Return an array over the memory of a tensor on the CPU; others are copied."""
        if not (tensor.is_dense() and _has_memory(tensor)):
            raise UnsupportedError(
                f"tensor `{name}` has no bytes of its own here",
                tensor=name,
                expected="a dense tensor with data",
                found="a sparse tensor" if not tensor.is_dense() else "a tensor without memory",
                hint="Save `.to_dense()` of a sparse one",
            )
        known = _NAMES.get(tensor.dtype)
        if known is None:
            raise DtypeError(
                f"tensor `{name}` has a dtype that the format cannot hold",
                tensor=name,
                expected="one of " + ", ".join(_DTYPES),
                found=str(tensor.dtype),
            )
        dtype, shape = self.numpy_dtype(BY_NUMPY[known]), tuple(tensor.shape)
        if not tensor.size:
            return np.empty(shape, dtype)
        tensor = tensor.detach()
        tensor = tensor if tensor.place.is_cpu_place() else tensor.cpu()
        reach = 1 + sum((extent - 1) * stride for extent, stride in zip(shape, tensor.strides, strict=True))
        start = tensor.data_ptr()
        (memory,) = bytes_at(start, start + reach * dtype.itemsize, tensor)
        return np.ndarray(shape, dtype, memory, 0, tuple(stride * dtype.itemsize for stride in tensor.strides))

    def for_export(self, tensor: Any) -> Any:
        """Return a copy in Paddle's own memory: Paddle never ends freeing other memory that it took twice."""
        name = _NAMES[tensor.dtype]
        if name not in _WITHOUT_KERNELS:
            return tensor.clone()
        bits = self.as_numpy(tensor, "").view(name.removeprefix("u"))
        return _view(paddle.to_tensor(bits, place=tensor.place), tensor.dtype)

    def _adopt(self, arrays: dict[str, npt.NDArray[Any]]) -> dict[str, Any]:
        return {name: _made(name, array) for name, array in arrays.items()}


def _made(name: str, array: npt.NDArray[Any]) -> Any:
    if array.ndim > _MAX_NDIM:
        raise LimitError(
            f"tensor `{name}` has more dimensions than paddle can hold",
            tensor=name,
            expected=f"at most {_MAX_NDIM}",
            found=f"shape {list(array.shape)}",
            hint='Load it with framework="numpy"',
        )
    if not array.size and array.dtype.name not in _WITHOUT_KERNELS:  # NumPy's strides would be 0
        return paddle.empty(array.shape, dtype=_DTYPES[array.dtype.name])
    if array.dtype.isbuiltin == _OF_NUMPY:
        return _over(array)
    bits = "int16" if array.itemsize == 2 else "uint8"
    return _view(_over(array.view(bits)), _DTYPES[array.dtype.name])


def _over(array: npt.NDArray[Any]) -> Any:
    """Make a tensor over the memory of an array."""
    capsule = array.__dlpack__()
    if _init is None:
        return from_dlpack(capsule)
    tensor = paddle.Tensor.__new__(paddle.Tensor)
    _init(tensor, paddle.base.core.from_dlpack(capsule))
    return tensor

"""Dense jax.Arrays, on any device or sharding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Literal

import jax
import numpy as np
import numpy.typing as npt

from tensorkeep.arrays._base import TensorToWrite
from tensorkeep.arrays._by_numpy import ArraysByNumpy
from tensorkeep.arrays.jax._sharded import is_in_shards, is_whole_here, sharded_to_write
from tensorkeep.arrays.jax.devices import cpu_device, is_on_cpu, jax_device
from tensorkeep.arrays.jax.memory import ARRAY_CLASS, over_memory
from tensorkeep.dtypes import BY_NUMPY, DType
from tensorkeep.errors import UnsupportedError

_WIDE: Final = frozenset({"F64", "I64", "U64"})
_LACKING: Final = frozenset({"F6_E2M3", "F6_E3M2"})


def _is_plain(array: Any) -> bool:
    return array.dtype.name in BY_NUMPY and not array.is_deleted()


class JaxArrays(ArraysByNumpy):
    """Dense jax.Arrays on one device or sharding: `DenseArrays`."""

    framework: ClassVar[str] = "jax"
    plain_classes: ClassVar[Mapping[type, Callable[[Any], bool]]] = {ARRAY_CLASS: _is_plain}

    def __init__(self, device: Any = "cpu") -> None:
        is_plain_cpu = isinstance(device, str) and device == "cpu"
        self._device = None if is_plain_cpu else jax_device(device)
        self.is_on_host = cpu_device() is not None if self._device is None else is_on_cpu(self._device)

    def place(self, tensors: dict[str, Any]) -> dict[str, Any]:
        """Move arrays to the device or sharding."""
        if self._device is None:
            return tensors
        moved: dict[str, Any] = jax.device_put(tensors, self._device)
        return moved

    def has_dtype(self, dtype: DType) -> bool:
        """Say whether jax has a dtype; it has 64 bits only if they are enabled."""
        if dtype.name in _WIDE:
            return bool(jax.dtypes.canonicalize_dtype(np.dtype(dtype.numpy)).itemsize == dtype.itemsize)
        return bool(dtype.numpy) and dtype.name not in _LACKING

    def tensor_to_write(self, tensor: Any, name: str) -> TensorToWrite:
        """Describe an array for writing, also one with shards in other processes."""
        if type(tensor) is ARRAY_CLASS and not tensor.is_deleted():
            dtype = BY_NUMPY.get(tensor.dtype.name)
            if dtype is not None and is_in_shards(tensor, dtype):
                return sharded_to_write(tensor, dtype, name)
        return super().tensor_to_write(tensor, name)

    def as_numpy(self, tensor: Any, name: str) -> npt.NDArray[Any]:
        """Return an array over the memory of one on the CPU; others are copied from their devices."""
        if (
            type(tensor) is not ARRAY_CLASS
            or tensor.is_deleted()
            or not (tensor.is_fully_addressable or is_whole_here(tensor))
        ):
            raise UnsupportedError(
                f"tensor `{name}` has no bytes of its own here",
                tensor=name,
                expected="a jax.Array whose shards are all on devices of this process",
                found=_obstacle(tensor),
                hint="Save what a jitted function returns, not what it traces; save keys as jax.random.key_data(key)",
            )
        return np.asarray(tensor)

    def refuse_lacking(self, dtype: DType) -> None:
        """Raise DtypeError if jax, as it is set up here, has no such dtype."""
        self._refuse_dtype(dtype)

    def _adopt(self, arrays: dict[str, npt.NDArray[Any]]) -> dict[str, Any]:
        return over_memory(arrays)

    def _hint(self, dtype: DType) -> str:
        if dtype.name not in _WIDE:
            return super()._hint(dtype)
        cast = f'cast to 32 bits: tensorkeep.open(path, framework="{self.framework}").cast("F32")'
        other = cast if dtype.is_float else 'load it with framework="flax", which drops the upper 32 bits'
        return f'Call jax.config.update("jax_enable_x64", True) first, or {other}'


class FlaxArrays(JaxArrays):
    """The arrays that safetensors.flax makes: on jax's default device, without 64 bits unless these are enabled."""

    plain_classes: ClassVar[Mapping[type, Callable[[Any], bool]]] = {}  # they are arrays of jax

    def __init__(self, device: Any = "cpu") -> None:
        super().__init__(device)
        if self._device is None:
            self.is_on_host = is_on_cpu(jax_device(None))

    def has_dtype(self, dtype: DType) -> bool:
        """Say whether jax has a dtype, or would convert it."""
        return dtype.name in _WIDE or super().has_dtype(dtype)

    def memory_of(self, dtype: DType) -> Literal["shared", "copied", "converted"]:
        """Say whether an array shares the memory it is made of: not if jax converts it."""
        return super().memory_of(dtype) if super().has_dtype(dtype) else "converted"

    def _adopt(self, arrays: dict[str, npt.NDArray[Any]]) -> dict[str, Any]:
        for name, array in arrays.items():
            if array.dtype.itemsize == 8 and array.dtype.kind != "c":
                with np.errstate(over="ignore"):
                    arrays[name] = array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)
        if self.is_on_host or self._device is not None:
            return over_memory(arrays)
        return {name: jax.numpy.asarray(array) for name, array in arrays.items()}


def _obstacle(tensor: Any) -> str:
    if type(tensor) is not ARRAY_CLASS:
        return type(tensor).__name__
    return "a deleted array" if tensor.is_deleted() else "shards on devices of other processes"

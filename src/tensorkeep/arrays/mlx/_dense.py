"""Dense arrays of MLX. They are on no device, since its devices share memory; operations are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import ml_dtypes
import mlx.core as mx
import numpy as np
import numpy.typing as npt

from tensorkeep.arrays._by_numpy import ArraysByNumpy
from tensorkeep.arrays.mlx.memory import compute, gives_own_bytes, memory_of, viewed, zeros
from tensorkeep.dtypes import BY_NAME, BY_NUMPY, DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import DeviceError, LimitError, UnsupportedError

_LARGEST_EXTENT: Final = 2**31 - 1
_FILLED_FROM_NBYTES: Final = 2**16
"""Bytes from which a file is read into an array; making a smaller one of mapped memory takes less time."""
_BFLOAT16: Final[np.dtype[Any]] = np.dtype(ml_dtypes.bfloat16)
_MOVED_AS_BITS: Final = {_BFLOAT16.num: ("uint16", mx.bfloat16), np.dtype(np.float64).num: ("uint64", mx.float64)}
"""By the number that NumPy gives each dtype, since dtypes take longer to compare."""


def _name_of(dtype: Any) -> str:
    """Return NumPy's name for a dtype of MLX."""
    return str(dtype).removeprefix("mlx.core.").rstrip("_")


_DTYPES: Final = {_name_of(found): found for found in map(vars(mx).get, dir(mx)) if isinstance(found, mx.Dtype)}


class MlxArrays(ArraysByNumpy):
    """Dense arrays of MLX: `DenseArrays`."""

    framework: ClassVar[str] = "mlx"
    plain_classes: Final[Mapping[type, Callable[[Any], bool]]] = {
        mx.array: lambda array: _name_of(array.dtype) in BY_NUMPY
    }

    def __init__(self, device: Any = "cpu") -> None:
        self._is_for_gpu = _is_gpu(device)

    def has_dtype(self, dtype: DType) -> bool:
        """Say whether MLX has a dtype; its GPUs have no F64."""
        return dtype.numpy in _DTYPES and not (dtype.name == "F64" and self._is_for_gpu)

    def as_numpy(self, tensor: Any, name: str) -> npt.NDArray[Any]:
        """Return an array over the memory of an array, which is computed now if it was not yet."""
        try:
            if tensor.dtype == mx.bfloat16:
                return np.asarray(tensor.view(mx.uint16)).view(_BFLOAT16)
            return np.asarray(tensor)
        except RuntimeError as error:
            raise UnsupportedError(
                f"tensor `{name}` could not be computed",
                tensor=name,
                expected="an array that MLX can compute in this thread",
                found=str(error),
                hint="Call mx.eval(array) in the thread that made it, then save it",
            ) from error

    def filled(
        self, entries: Mapping[str, TensorEntry], fill: Callable[[Mapping[str, memoryview]], None]
    ) -> dict[str, Any]:
        """Make large arrays and read into their memory."""
        large = {name: entry for name, entry in entries.items() if self._is_filled(entry)}
        if not large or not gives_own_bytes():
            return {}
        dtypes = {entry.dtype: _DTYPES[BY_NAME[entry.dtype].numpy] for entry in large.values()}
        made = zeros(large, dtypes)
        fill({name: memory_of(array) for name, array in made.items()})
        return made

    def _is_filled(self, entry: TensorEntry) -> bool:
        if entry.nbytes < _FILLED_FROM_NBYTES or max(entry.shape, default=0) > _LARGEST_EXTENT:
            return False
        dtype = BY_NAME.get(entry.dtype)
        return dtype is not None and self.has_dtype(dtype)

    def _adopt(self, arrays: dict[str, npt.NDArray[Any]]) -> dict[str, Any]:
        made = {name: _made(name, array) for name, array in arrays.items()}
        described = [made[name] for name, array in arrays.items() if array.dtype.num in _MOVED_AS_BITS]
        if described:
            compute(described)
        return made


def _made(name: str, array: npt.NDArray[Any]) -> Any:
    if not 0 < array.size <= _LARGEST_EXTENT and max(array.shape) > _LARGEST_EXTENT:
        raise LimitError(
            f"tensor `{name}` has a dimension that mlx cannot count",
            tensor=name,
            expected=f"at most {_LARGEST_EXTENT:,} elements along each",
            found=f"shape {list(array.shape)}",
            hint='Load it with framework="numpy"',
        )
    bits = _MOVED_AS_BITS.get(array.dtype.num)  # MLX would convert F64 to F32
    return mx.array(array) if bits is None else viewed(mx.array(array.view(bits[0])), bits[1])


def _is_gpu(device: Any) -> bool:
    """Say whether a device is a GPU; refuse one that is not here."""
    text = str(device).removeprefix("DeviceType.").lower()
    if isinstance(device, mx.Device):
        text = str(device.type).removeprefix("DeviceType.")
    if device is None or text == "cpu" or (text == "gpu" and mx.is_available(mx.gpu)):
        return text == "gpu"
    raise DeviceError(
        f"mlx has no device {str(device)!r:.100} here",
        expected="mx.cpu" + (" or mx.gpu" if mx.is_available(mx.gpu) else ""),
    )

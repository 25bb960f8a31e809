"""Dense arrays of CuPy, on a GPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import cupy
import numpy as np
import numpy.typing as npt

from tensorkeep.arrays._by_numpy import ArraysByNumpy
from tensorkeep.dtypes import BY_NUMPY, DType
from tensorkeep.errors import DeviceError


class CupyArrays(ArraysByNumpy):
    """Dense arrays of CuPy on one GPU: `DenseArrays`."""

    framework: ClassVar[str] = "cupy"
    is_on_host = False
    plain_classes: Final[Mapping[type, Callable[[Any], bool]]] = {
        cupy.ndarray: lambda array: array.dtype.name in BY_NUMPY and BY_NUMPY[array.dtype.name].is_in_numpy
    }

    def __init__(self, device: Any = None) -> None:
        self._device = _index(device)

    def place(self, tensors: dict[str, Any]) -> dict[str, Any]:
        """Leave arrays on the GPU on which they were made."""
        return tensors

    def has_dtype(self, dtype: DType) -> bool:
        """Say whether CuPy computes with a dtype: NumPy's own."""
        return dtype.is_in_numpy

    def as_numpy(self, tensor: Any, name: str) -> npt.NDArray[Any]:  # noqa: ARG002
        """Return a copy of an array in the CPU's memory."""
        copied: npt.NDArray[Any] = cupy.asnumpy(tensor)
        return copied

    def _adopt(self, arrays: dict[str, npt.NDArray[Any]]) -> dict[str, Any]:
        with cupy.cuda.Device(self._device):
            return {name: cupy.asarray(np.asarray(array)) for name, array in arrays.items()}


def _index(device: Any) -> int | None:
    """Return the number of a GPU: of `cupy.cuda.Device(1)`, 1 or `"cuda:1"`; None for the current one."""
    if device is None or str(device) in {"cpu", "cuda"}:  # no array of CuPy is on the CPU
        return None
    found = re.fullmatch(r"(?:cuda:)?(\d{1,4})", str(getattr(device, "id", device)))
    n_devices = cupy.cuda.runtime.getDeviceCount()
    if found is None or int(found[1]) >= n_devices:
        raise DeviceError(f"cupy has no device {str(device)!r:.100} here", expected=f"0 to {n_devices - 1}")
    return int(found[1])

"""Objects of other libraries that export their memory through DLPack, as NumPy arrays."""

from __future__ import annotations

from typing import Any

from tensorkeep.arrays._base import TensorToWrite
from tensorkeep.arrays._registry import host_arrays, library_of, tensor_to_write
from tensorkeep.errors import UnsupportedError


def exports_memory(value: Any) -> bool:
    """Say whether a value is of no known library and exports its memory through DLPack."""
    return hasattr(type(value), "__dlpack__") and library_of(value) is None


def any_tensor_to_write(tensor: Any, name: str) -> TensorToWrite:
    """Describe a tensor for writing, also one of an unknown library that exports its memory."""
    if not exports_memory(tensor):
        return tensor_to_write(tensor, name)
    import numpy as np

    try:
        array = np.from_dlpack(tensor)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise UnsupportedError(
            f"tensor `{name}` cannot be taken through DLPack",
            tensor=name,
            expected="memory on the CPU, of a dtype that NumPy has",
            found=f"{type(tensor).__name__}: {error!s:.300}",
            hint="Save a NumPy array of its elements",
        ) from error
    return host_arrays("numpy").tensor_to_write(array, name)

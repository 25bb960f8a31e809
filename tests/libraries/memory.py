"""Tensors over memory at chosen addresses."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tensorkeep.arrays import adapter_for, tensor_to_write
from tensorkeep.dtypes import BY_NAME
from tensorkeep.entries import TensorEntry

ADDRESSES = (0, 4, 8, 16, 32, 64, 100, 128, 4096)


def over_memory(framework: str, dtype: str, offset: int) -> tuple[Any, bool]:
    """Return a tensor of 24 ones over memory at a multiple of 4,096 and an offset, and whether it is there."""
    row = BY_NAME[dtype]
    memory = np.zeros(3 * 4096, np.uint8)
    start = -memory.ctypes.data % 4096 + offset
    ones = np.ones(24, ml_dtypes.bfloat16 if dtype == "BF16" else row.numpy)
    memory[start : start + ones.nbytes] = ones.view(np.uint8)
    entry = TensorEntry(dtype, (2, 3, 4), (0, ones.nbytes))
    tensor = adapter_for(framework).views(memory.data, {"w": entry}, start)["w"]
    extent = tensor_to_write(tensor, "w").extent()
    assert extent is not None
    return tensor, extent.start == memory.ctypes.data + start

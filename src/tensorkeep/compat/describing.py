"""Tensors of any library, described for writing as the reference's modules take them (imports NumPy)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorkeep.arrays import TensorToWrite, any_tensor_to_write, exports_memory, is_tensor
from tensorkeep.compat.wording import check_names


def described(tensors: dict[str, Any]) -> dict[str, TensorToWrite]:
    """Describe tensors for writing; what is no tensor becomes an array, as in the reference."""
    check_names(tensors)
    return {
        name: any_tensor_to_write(tensor if is_tensor(tensor) or exports_memory(tensor) else np.asarray(tensor), name)
        for name, tensor in tensors.items()
    }

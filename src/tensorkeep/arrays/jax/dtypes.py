"""The dtypes that jax has as it is set up here (imports jax)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorkeep.arrays.jax._dense import JaxArrays
from tensorkeep.dtypes import BY_NAME, DType


def array_dtype(dtype: DType) -> np.dtype[Any]:
    """Return the dtype of arrays for one of the format; DtypeError if jax lacks it."""
    arrays = JaxArrays()
    arrays.refuse_lacking(dtype)
    return arrays.numpy_dtype(dtype)


def is_lacking(name: str) -> bool:
    """Say whether NumPy has a dtype of the format, and jax lacks it: one of 64 bits, unless they are enabled."""
    dtype = BY_NAME.get(name)
    return dtype is not None and bool(dtype.numpy) and not JaxArrays().has_dtype(dtype)

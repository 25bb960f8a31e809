"""What `orbax.checkpoint.utils` has for templates."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

__all__ = ["to_shape_dtype_struct"]


def to_shape_dtype_struct(arr: Any, dtype: Any = None, scalar_dtype: Any = None, support_format: bool = False) -> Any:
    """Describe an array, for a template: `jax.tree.map(ocp.utils.to_shape_dtype_struct, state)`.

    Args:
        arr: An array of JAX or NumPy, a `jax.ShapeDtypeStruct`, or a number.
        dtype: The dtype to say instead of the array's.
        scalar_dtype: What to call with a number, such as `int`; None leaves it.
        support_format: Ignored: JAX chooses the layouts of arrays on devices.

    Returns:
        A `jax.ShapeDtypeStruct` with the array's sharding; a number stays one. Random keys stay keys.
    """
    del support_format
    if isinstance(arr, int | float | complex | np.number | str):
        return arr if scalar_dtype is None else scalar_dtype(arr)
    describe: Any = jax.ShapeDtypeStruct
    return describe(arr.shape, dtype or arr.dtype, sharding=getattr(arr, "sharding", None))

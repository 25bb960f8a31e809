"""Tensors whose elements are numbers."""

from __future__ import annotations

from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.errors import DtypeError
from tensorkeep.tensors.lazy._lazy import LazyTensor


def numeric(lazy: LazyTensor) -> LazyTensor:
    """Return a tensor whose elements NumPy or ml_dtypes has: of a quantized one, the numbers in F32."""
    if lazy.is_quantized:
        return lazy.dequantize("f32")
    dtype = ALL_BY_NAME.get(lazy.dtype)
    if dtype is None or not dtype.numpy:
        raise DtypeError(
            f"the numbers of tensor `{lazy.name}` are not known: this version does not know its dtype",
            tensor=lazy.name,
            found=lazy.dtype,
        )
    return lazy

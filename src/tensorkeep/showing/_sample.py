"""A bounded part of a tensor as a matrix."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.tensors import LazyTensor, TensorView

_EXTENT: Final = 128
"""Largest number of rows and columns."""

_MAX_NBYTES: Final = 64 * 2**20
_MAX_REQUESTS: Final = 512
"""What a sample of the whole may read; otherwise it is the first corner."""


class Sample(msgspec.Struct, frozen=True, eq=False):
    """Some numbers of a tensor.

    Attributes:
        numbers: A float64 matrix.
        index: Where they are in the tensor, as one would write it.
    """

    numbers: npt.NDArray[np.float64]
    index: str


def sample_of(lazy: LazyTensor) -> Sample | None:
    """Read rows and columns at equal distances, of the first matrix of a tensor; None if it has no elements."""
    if not lazy.n_elements or not lazy.ndim:
        return None
    if lazy.is_quantized:
        lazy = lazy.dequantize("f32")
    lazy = LazyTensor(lazy.name, lazy.entry, lazy.reader.with_framework("numpy"))
    leading = (0,) * (lazy.ndim - 2)
    extents = lazy.shape[-2:]
    index: tuple[Any, ...] = (*leading, *(slice(None, None, -(-extent // _EXTENT)) for extent in extents))
    plan = TensorView({lazy.name: lazy}, path=lazy.name).plan({lazy.name: index})
    if plan.nbytes > _MAX_NBYTES or plan.n_requests > _MAX_REQUESTS:
        index = (*leading, *(slice(_EXTENT) for _ in extents))
    elements = lazy[index]
    with np.errstate(all="ignore"):
        wide = np.abs(elements) if elements.dtype.kind == "c" else elements
        numbers = np.atleast_2d(wide.astype(np.float64))
    return Sample(numbers, ", ".join(_written(part) for part in index))


def _written(part: int | slice[Any, Any, Any]) -> str:
    if isinstance(part, int):
        return str(part)
    return f":{part.stop}" if part.stop else f"::{part.step}" if part.step != 1 else ":"

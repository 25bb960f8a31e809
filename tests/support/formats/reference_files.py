"""Files written by the reference implementation, from plain bytes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import NamedTuple

import safetensors

from tensorkeep.dtypes import BY_NAME, DTYPES

__all__ = ["WRITABLE", "Plain", "reference_file"]

_SPEC_NAMES = {dtype.name: dtype.torch for dtype in DTYPES if dtype.torch}
WRITABLE = tuple(_SPEC_NAMES)
"""The dtypes that the reference can write: all but F6."""


class Plain(NamedTuple):
    """A tensor as the file has it.

    Attributes:
        dtype: Name in the format.
        shape: Elements along each dimension.
        data: Its bytes.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def counting(cls, dtype: str, *shape: int) -> Plain:
        """Return a tensor whose bytes count up: 0, 1, 2 … (for BOOL 0, 1, 0 …)."""
        n_elements = 1
        for extent in shape:
            n_elements *= extent
        nbytes = BY_NAME[dtype].nbytes(n_elements)
        return cls(dtype, shape, bytes(place % (2 if dtype == "BOOL" else 256) for place in range(nbytes)))


def reference_file(tensors: Mapping[str, Plain], metadata: dict[str, str] | None = None) -> bytes:
    """Return the file that the reference writes."""
    kept = {
        name: ctypes.create_string_buffer(tensor.data, max(1, len(tensor.data))) for name, tensor in tensors.items()
    }
    specs = {
        name: safetensors.TensorSpec(
            dtype=_SPEC_NAMES[tensor.dtype],
            shape=_in_pairs(tensor.shape) if tensor.dtype == "F4" else list(tensor.shape),
            data_ptr=ctypes.addressof(kept[name]),
            data_len=len(tensor.data),
        )
        for name, tensor in tensors.items()
    }
    return bytes(safetensors.serialize(specs, metadata))


def _in_pairs(shape: tuple[int, ...]) -> list[int]:
    """Return the shape in torch's fp4 dtype, which holds two elements in one."""
    return [*shape[:-1], shape[-1] // 2]

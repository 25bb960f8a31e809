"""The raw layer of `safetensors.torch`: its dtype tables, and the tensors behind `serialize` and `deserialize`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tensorkeep.compat._serialize import TensorSpec
from tensorkeep.compat.wording import strided_text
from tensorkeep.dtypes import DTYPES

TYPES: dict[str, torch.dtype] = {
    dtype.name: getattr(torch, dtype.torch) for dtype in DTYPES if dtype.torch and hasattr(torch, dtype.torch)
}
"""A dtype's name in the format to torch's dtype, for all that torch has."""

SIZE: dict[torch.dtype, int] = {dtype: dtype.itemsize for dtype in TYPES.values()}
"""Bytes of one element."""


def to_ndarray(tensor: torch.Tensor) -> tuple[npt.NDArray[np.uint8], torch.Tensor]:
    """Return a tensor's bytes, and the tensor that keeps them alive."""
    host = tensor.detach().cpu().resolve_conj().resolve_neg()
    stored: npt.NDArray[np.uint8] = host.reshape(-1).view(torch.uint8).numpy()
    if not np.little_endian:
        stored = stored.view(f"u{host.element_size()}").byteswap().view(np.uint8)
    return stored, host


def flatten_as_ptr(tensors: Mapping[str, torch.Tensor], keep_alive_buffer: list[Any]) -> dict[str, TensorSpec]:
    """Describe contiguous tensors for `serialize`."""
    flattened = {}
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(strided_text(name))
        array, host = to_ndarray(tensor)
        keep_alive_buffer.append((array, host))
        flattened[name] = TensorSpec(
            dtype=str(tensor.dtype).removeprefix("torch."),
            shape=tensor.shape,
            data_ptr=array.ctypes.data,
            data_len=array.nbytes,
        )
    return flattened

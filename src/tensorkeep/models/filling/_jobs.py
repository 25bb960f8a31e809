"""What is read into what."""

from __future__ import annotations

import sys

import msgspec
import torch

from tensorkeep.arrays import adapter_for
from tensorkeep.dtypes import DType
from tensorkeep.tensors import LazyTensor


class Job(msgspec.Struct, frozen=True, eq=False):
    """A tensor to fill.

    Attributes:
        lazy: The saved tensor.
        into: A tensor with as many elements; packed ones (F4) are counted as in the checkpoint.
        versioned: Tensors over this memory whose autograd version must increase.
    """

    lazy: LazyTensor
    into: torch.Tensor
    versioned: tuple[torch.Tensor, ...] = ()


def suits_device(into: torch.Tensor, dtype: DType) -> bool:
    """Say whether a device can copy, or convert, bytes of a dtype into a tensor by itself."""
    return (
        not dtype.is_packed
        and adapter_for("torch").has_dtype(dtype)
        and not (into.is_conj() or into.is_neg())
        and sys.byteorder == "little"
    )

"""Weights that a model ties and its state does not: only one of the saved tensors can go there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import nn

from tensorkeep.arrays import pieces
from tensorkeep.errors import StateDictMismatchError

__all__ = ["check_ties"]

_PIECE_NBYTES: Final = 2**24
"""Bytes that are compared at once, and of which a copy may be needed."""


def check_ties(module: nn.Module, own: Mapping[str, Any], saved: Mapping[str, Any], part: str) -> None:
    """Make sure that no two tensors that differ go into one memory of a module.

    Args:
        module: The module.
        own: Its state dict.
        saved: What is to be loaded, under the same names.
        part: What to call it in messages.

    Raises:
        StateDictMismatchError: If they do.
    """
    first_names: dict[Any, str] = {}
    for name, value in own.items():
        if not (name in saved and _is_plain(value) and _is_plain(saved[name]) and value.data_ptr()):
            continue
        place = (value.device, value.data_ptr(), value.dtype, value.shape, value.stride())
        first = first_names.setdefault(place, name)
        if first != name and not _are_equal(saved[first], saved[name]):
            raise StateDictMismatchError(
                f"{part} does not fit {type(module).__name__}, which ties `{first}` to `{name}`",
                expected="equal tensors, or one of them",
                found="two that differ",
                hint=f"Nothing was changed. Untie them in the model; or let strict=False take `{name}`",
                unexpected=[first],
            )


def _is_plain(value: Any) -> bool:
    return type(value) in {torch.Tensor, nn.Parameter} and value.layout == torch.strided and not value.is_quantized


def _are_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    if (a.device, a.data_ptr(), a.stride()) == (b.device, b.data_ptr(), b.stride()):
        return True
    places = pieces(tuple(a.shape), a.element_size(), _PIECE_NBYTES)
    return all(torch.equal(_bytes(a[place]), _bytes(b[place])) for place in places)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    resolved = tensor.detach().cpu().resolve_conj().resolve_neg()
    return resolved.contiguous().reshape(-1).view(torch.uint8)

"""Memory that a model has in two places, or shares with the state that it is to be given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import nn

from tensorkeep.arrays import pieces
from tensorkeep.errors import StateDictMismatchError

_PIECE_NBYTES: Final = 2**24
"""Bytes that are compared at once, and of which a copy may be needed."""


def check_ties(module: nn.Module, own: Mapping[str, Any], saved: Mapping[str, Any], part: str) -> None:
    """Make sure that no two tensors that differ go into one memory of a module."""
    firsts: dict[Any, tuple[str, torch.Tensor]] = {}
    for name, value in own.items():
        theirs: Any = saved.get(name)
        if not (_is_plain(value) and _is_plain(theirs) and value.data_ptr() and value.shape == theirs.shape):
            continue
        order = sorted(range(value.ndim), key=value.stride, reverse=True)  # a weight may be tied to its transpose
        there = value.permute(order)
        place = (there.device, there.data_ptr(), there.dtype, there.shape, there.stride())
        first, tensor = firsts.setdefault(place, (name, theirs.permute(order)))
        if first != name and not _are_equal(tensor, theirs.permute(order)):
            raise StateDictMismatchError(
                f"{part} does not fit {type(module).__name__}, which ties `{first}` to `{name}`",
                expected="equal tensors, or one of them",
                found="two that differ",
                hint=f"Nothing was changed. Untie them in the model; or let strict=False take `{name}`",
                unexpected=[first],
            )


def check_apart(own: Mapping[str, Any], saved: Mapping[str, Any], part: str) -> None:
    """Make sure that a state is not the memory of the module itself, which has changed with it since."""
    for name, value in own.items():
        theirs: Any = saved.get(name)
        is_same = _is_plain(value) and _is_plain(theirs) and value.device == theirs.device
        if is_same and value.data_ptr() and value.data_ptr() == theirs.data_ptr():
            raise StateDictMismatchError(
                f"`{name}` of {part} is the tensor of the model itself, which went on with it since it was captured",
                hint="Nothing was changed. Save what is to stay as it is, or keep copy.deepcopy(capture(...))",
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

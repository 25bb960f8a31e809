"""New memory under the parameters and buffers of a model."""

from __future__ import annotations

import torch
from torch import nn

from tensorkeep.models._slots import Slot


def renew(slot: Slot, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Give a slot memory that nothing was written to."""
    with torch.no_grad():
        fresh = torch.empty_like(slot.tensor, dtype=dtype, device=device)
    replace(slot, fresh)
    return fresh


def convert(slot: Slot, dtype: torch.dtype, device: torch.device) -> None:
    """Give a slot another dtype or device, with the same numbers."""
    if slot.tensor.is_meta or (dtype, device) == (slot.tensor.dtype, slot.tensor.device):
        return
    with torch.no_grad():
        replace(slot, slot.tensor.to(device=device, dtype=dtype))


def replace_part(part: Slot, old: torch.Tensor, fresh: torch.Tensor) -> None:
    """Make a slot that lies inside another one a part of the other's new memory."""
    view = part.tensor
    offset = (view.data_ptr() - old.data_ptr()) // old.element_size()
    replace(part, fresh.as_strided(view.shape, view.stride(), fresh.storage_offset() + offset))


def replace(slot: Slot, fresh: torch.Tensor) -> None:
    """Put a tensor in the place of what a slot holds.

    Parameters and buffers stay the same objects, for optimizers and ties, where torch can do that; those on device
    meta become others.
    """
    if all(torch._has_compatible_shallow_copy_type(tensor, fresh) for tensor in slot.tensors):
        for tensor in slot.tensors:
            tensor.data = fresh
            if tensor.grad is not None:
                tensor.grad.data = tensor.grad.data.to(device=fresh.device, dtype=fresh.dtype)
        return
    successors = {id(tensor): _like(tensor, fresh) for tensor in slot.tensors}
    for module, attribute in slot.places:
        setattr(module, attribute, successors[id(getattr(module, attribute))])


def _like(tensor: torch.Tensor, fresh: torch.Tensor) -> torch.Tensor:
    """Return the fresh tensor as a parameter if the old one is, with the attributes that somebody gave it."""
    if not isinstance(tensor, nn.Parameter):
        return fresh
    parameter = nn.Parameter(fresh, requires_grad=tensor.requires_grad)
    parameter.__dict__.update(tensor.__dict__)
    return parameter

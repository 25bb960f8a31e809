"""New memory for the parameters and buffers of a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import torch
from torch import nn

from tensorkeep.arrays import adapter_for
from tensorkeep.models._dtensor import local_of
from tensorkeep.models._parameters import ParameterStorage
from tensorkeep.tensors.to_device import device_memory_of, require_room

Change: TypeAlias = tuple[ParameterStorage, torch.dtype, torch.device]
"""A parameter, and the dtype and device that it is to have."""


def require_memory(changes: Iterable[Change], path: str) -> None:
    """Refuse parameters that do not fit on their devices, or in the budget of a load; nothing is changed yet."""
    needed: dict[torch.device, int] = {}
    for storage, dtype, device in changes:
        tensor = local_of(storage.tensor)
        freed = tensor.nbytes if tensor.device == device else 0
        needed[device] = needed.get(device, 0) + tensor.numel() * dtype.itemsize - freed
    for device, nbytes in needed.items():
        memory = device_memory_of(adapter_for("torch", device))
        if memory is not None:
            require_room(memory, nbytes, path)


def reallocate(storage: ParameterStorage, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Give a parameter uninitialized memory, and return it."""
    with torch.no_grad():
        fresh = torch.empty_like(storage.tensor, dtype=dtype, device=device)
    replace(storage, fresh)
    return fresh


def convert(storage: ParameterStorage, dtype: torch.dtype, device: torch.device) -> None:
    """Give a parameter another dtype or device, and keep its values."""
    if storage.tensor.is_meta or (dtype, device) == (storage.tensor.dtype, storage.tensor.device):
        return
    with torch.no_grad():
        replace(storage, storage.tensor.to(device=device, dtype=dtype))


def replace_part(part: ParameterStorage, old: torch.Tensor, fresh: torch.Tensor) -> None:
    """Make a parameter that was a view of `old` the same view of `fresh`."""
    view = part.tensor
    offset = (view.data_ptr() - old.data_ptr()) // old.element_size()
    replace(part, fresh.as_strided(view.shape, view.stride(), fresh.storage_offset() + offset))


def replace(storage: ParameterStorage, fresh: torch.Tensor) -> None:
    """Put a tensor in the place of a parameter.

    Parameters and buffers stay the same objects, for optimizers and ties, if torch allows that; those on device meta
    are replaced by new ones.
    """
    if all(torch._has_compatible_shallow_copy_type(tensor, fresh) for tensor in storage.tensors):
        for tensor in storage.tensors:
            tensor.data = fresh
            if tensor.grad is not None:
                tensor.grad.data = tensor.grad.data.to(device=fresh.device, dtype=fresh.dtype)
        return
    successors = {id(tensor): _like(tensor, fresh) for tensor in storage.tensors}
    for module, attribute in storage.places:
        setattr(module, attribute, successors[id(getattr(module, attribute))])


def _like(tensor: torch.Tensor, fresh: torch.Tensor) -> torch.Tensor:
    """Return the fresh tensor, as a parameter with the same attributes if the old one is a parameter."""
    if not isinstance(tensor, nn.Parameter):
        return fresh
    parameter = nn.Parameter(fresh, requires_grad=tensor.requires_grad)
    parameter.__dict__.update(tensor.__dict__)
    return parameter

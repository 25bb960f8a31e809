"""DTensors: each rank has a part; nothing is imported for models that have none."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch

from tensorkeep.models._placement import Cut, LocalPart, local_parts


def is_dtensor(tensor: torch.Tensor) -> bool:
    """Say whether a tensor is a DTensor."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def as_dtensor(tensor: torch.Tensor) -> Any:
    """Return the tensor itself, typed as the DTensor that it is."""
    return tensor


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor, as a view of the same memory."""
    detached: Any = tensor.detach()
    local: torch.Tensor = detached.to_local() if is_dtensor(tensor) else detached
    return local


def device_of(tensor: torch.Tensor) -> torch.device:
    """Return the device on which to allocate a tensor that has no memory: that of its mesh, or the CPU."""
    kind = as_dtensor(tensor).device_mesh.device_type if is_dtensor(tensor) else "cpu"
    return torch.empty(0, device=kind).device  # with the index of the current device


def parts_of(tensor: torch.Tensor) -> Iterable[LocalPart]:
    """Give the regions of a tensor that this rank has."""
    shape = tuple(tensor.shape)
    if not is_dtensor(tensor):
        return local_parts(shape, ())
    distributed = as_dtensor(tensor)
    coordinate = distributed.device_mesh.get_coordinate()
    if coordinate is None:
        return ()
    meshed = zip(distributed.placements, coordinate, distributed.device_mesh.shape, strict=True)
    return local_parts(
        shape,
        (
            Cut(placement.dim, place, n_places, getattr(placement, "split_factor", 1))
            for placement, place, n_places in meshed
            if hasattr(placement, "dim")
        ),
    )

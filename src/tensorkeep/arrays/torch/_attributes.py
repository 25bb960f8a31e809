"""What torch keeps of a tensor beside its elements: Parameter or Buffer, requires_grad, the memory format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tensorkeep.arrays._attributes import check_attributes, dense_order
from tensorkeep.errors import FormatError


def class_of(tensor: torch.Tensor) -> str | None:
    """Return how torch's modules hold a tensor."""
    # The first test is a shortcut; the second also knows parameters that wrap tensors of another class.
    if type(tensor) is torch.nn.Parameter or isinstance(tensor, torch.nn.Parameter):
        return "Parameter"
    return "Buffer" if getattr(tensor, "_is_buffer", False) else None


def attributes_of(tensor: torch.Tensor) -> dict[str, Any]:
    """Return what to save of a dense tensor beside its elements."""
    attributes: dict[str, Any] = {}
    if type(tensor) is not torch.Tensor or hasattr(tensor, "_is_buffer"):
        name = class_of(tensor)
        if name is not None:
            attributes["class"] = name
    if tensor.requires_grad:
        attributes["grad"] = True
    if not tensor.is_contiguous():
        order = dense_order(tuple(tensor.shape), tensor.stride())
        if order is not None:
            attributes["order"] = order
    return attributes


def with_attributes(tensor: torch.Tensor, attributes: Mapping[str, Any]) -> torch.Tensor:
    """Return a dense tensor that has the attributes."""
    name, grad, order = check_attributes(attributes, tensor.ndim)
    if order is not None and order != dense_order(tuple(tensor.shape), tensor.stride()):
        tensor = _ordered(tensor, order)
    return with_class(tensor, name, grad)


def with_class(tensor: torch.Tensor, name: str | None, grad: bool) -> torch.Tensor:
    """Make a Parameter or Buffer of a tensor, and set `requires_grad`."""
    if grad and not (tensor.is_floating_point() or tensor.is_complex()):
        raise FormatError("a tensor of a dtype without gradients requires them", found=str(tensor.dtype))
    if name == "Parameter":
        return torch.nn.Parameter(tensor, requires_grad=grad)
    if name == "Buffer":
        tensor = torch.nn.Buffer(tensor)
    return tensor.requires_grad_() if grad else tensor


def _ordered(tensor: torch.Tensor, order: list[int]) -> torch.Tensor:
    """Copy a tensor so that its dimensions are in another order in memory."""
    inverse = sorted(range(len(order)), key=order.__getitem__)
    if tensor.element_size() == 1 and tensor.dtype != torch.bool:  # torch cannot copy every narrow dtype
        return tensor.view(torch.uint8).permute(order).contiguous().permute(inverse).view(tensor.dtype)
    return tensor.permute(order).contiguous().permute(inverse)

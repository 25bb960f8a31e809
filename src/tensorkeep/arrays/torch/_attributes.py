"""What torch keeps beside the elements of a dense tensor: whether it is a parameter, gradients, the memory format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tensorkeep.arrays._attributes import check_marks, dense_order
from tensorkeep.errors import FormatError


def class_of(tensor: torch.Tensor) -> str | None:
    """Return what torch's modules call a tensor."""
    if type(tensor) is torch.nn.Parameter or isinstance(
        tensor, torch.nn.Parameter
    ):  # those of wrapper tensors too, which are of their own class
        return "Parameter"
    return "Buffer" if getattr(tensor, "_is_buffer", False) else None


def torch_marks(tensor: torch.Tensor) -> dict[str, Any]:
    """Return the marks of a dense tensor; see `tensorkeep.arrays.attributes_of`."""
    marks: dict[str, Any] = {}
    if type(tensor) is not torch.Tensor or hasattr(tensor, "_is_buffer"):
        name = class_of(tensor)
        if name is not None:
            marks["class"] = name
    if tensor.requires_grad:
        marks["grad"] = True
    if not tensor.is_contiguous():
        order = dense_order(tuple(tensor.shape), tensor.stride())
        if order is not None:
            marks["order"] = order
    return marks


def put_torch_marks(tensor: torch.Tensor, marks: Mapping[str, Any]) -> torch.Tensor:
    """Give a dense tensor its marks back; see `ArrayAdapter.with_attributes`."""
    name, grad, order = check_marks(marks, tensor.ndim)
    if order is not None and order != dense_order(tuple(tensor.shape), tensor.stride()):
        tensor = _ordered(tensor, order)
    return put_torch_class(tensor, name, grad)


def put_torch_class(tensor: torch.Tensor, name: str | None, grad: bool) -> torch.Tensor:
    """Make a parameter or buffer of a tensor, and say whether gradients are wanted."""
    if grad and not (tensor.is_floating_point() or tensor.is_complex()):
        raise FormatError("numbers that have no gradients want some", found=str(tensor.dtype))
    if name == "Parameter":
        return torch.nn.Parameter(tensor, requires_grad=grad)
    if name == "Buffer":
        tensor = torch.nn.Buffer(tensor)
    return tensor.requires_grad_() if grad else tensor


def _ordered(tensor: torch.Tensor, order: list[int]) -> torch.Tensor:
    """Copy a tensor so that its dimensions lie in another order."""
    inverse = sorted(range(len(order)), key=order.__getitem__)
    if tensor.element_size() == 1 and tensor.dtype != torch.bool:  # torch copies not every narrow dtype
        return tensor.view(torch.uint8).permute(order).contiguous().permute(inverse).view(tensor.dtype)
    return tensor.permute(order).contiguous().permute(inverse)

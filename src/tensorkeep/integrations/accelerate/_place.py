"""Loading each part of a checkpoint on its device."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from accelerate.utils import find_tied_parameters, retie_parameters, set_module_tensor_to_device
from torch import nn

from tensorkeep.errors import UnsupportedError
from tensorkeep.integrations.accelerate._match import torch_dtype_of
from tensorkeep.models import load_into
from tensorkeep.tensors import LazyTensor, TensorView

Parts: TypeAlias = dict[Any, dict[str, LazyTensor]]

ON_DISK: Final = "disk"
"""In a device map: the module's weights are read each time it is called."""


_OFFLOADED: Final = ("cpu", ON_DISK)
"""Where weights may be that a module's hook has to move to another device before use."""


def main_device(device_map: Mapping[str, Any]) -> Any:
    """Return the device that computes modules whose weights are on the CPU or the disk."""
    return next((device for device in device_map.values() if device not in _OFFLOADED), "cpu")


def device_of(name: str, device_map: Mapping[str, Any]) -> Any:
    """Return the device of a tensor: the map's entry for the innermost module around it.

    A tensor with an entry of its own has no module whose hook would move it, so it is on the main device.
    """
    if device_map.get(name) in _OFFLOADED:
        return main_device(device_map)
    while name not in device_map:
        name = name.rpartition(".")[0]
    return device_map[name]


def check_nesting(device_map: Mapping[str, Any]) -> None:
    """Refuse a map that names a module and a part of it, with only one of them on the disk."""
    for name, device in device_map.items():
        outer = name
        while outer:
            outer = outer.rpartition(".")[0]
            if outer in device_map and device_map[outer] != device and ON_DISK in (device, device_map[outer]):
                raise UnsupportedError(
                    "the device map names a module and a part of it, and only one of them is on the disk",
                    expected="each part by name, and not the module",
                    found=f"{outer!r}: {device_map[outer]!r} and {name!r}: {device!r}",
                )


def parts_of(
    model: nn.Module, found: Mapping[str, LazyTensor], device_map: Mapping[str, Any], *, offload_buffers: bool
) -> Parts:
    """Return the tensors of a checkpoint by the device they belong on, or the disk."""
    movable = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    if offload_buffers:
        movable |= {name for name, _ in model.named_buffers(remove_duplicate=False)}
    parts: Parts = {}
    for name, lazy in found.items():
        device = device_of(name, device_map)
        stays = device != ON_DISK or name in movable
        parts.setdefault(device if stays else "cpu", {})[name] = lazy
    return parts


def place(model: nn.Module, parts: Parts, path: str) -> None:
    """Load the part of each device, and free the memory of weights that stay on the disk."""
    tied = find_tied_parameters(model)
    for device, part in parts.items():
        if device == ON_DISK:
            for name, lazy in part.items():
                set_module_tensor_to_device(model, name, "meta", dtype=torch_dtype_of(lazy))
        else:
            with _only(model, part):
                load_into(model, TensorView(part, path=path), strict=False, device=device, assign=True)
    retie_parameters(model, tied)


@contextmanager
def _only(model: nn.Module, names: Collection[str]) -> Iterator[None]:
    """Hide all but some parameters and buffers of a model in the block."""
    own = model.state_dict(keep_vars=True)
    shown = {id(own[name]) for name in names}
    members: list[dict[str, Any]] = [
        members for module in model.modules() for members in (module._parameters, module._buffers)
    ]
    hidden = [
        (tensors, attribute, tensor)
        for tensors in members
        for attribute, tensor in tensors.items()
        if tensor is not None and id(tensor) not in shown
    ]
    try:
        for tensors, attribute, _ in hidden:
            tensors[attribute] = None
        yield
    finally:
        for tensors, attribute, tensor in hidden:
            tensors[attribute] = tensor

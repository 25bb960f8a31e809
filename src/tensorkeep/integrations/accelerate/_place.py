"""The parts of a checkpoint, each onto its device."""

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
"""What a device map says of a module whose weights are read whenever it is called."""


_ELSEWHERE: Final = ("cpu", ON_DISK)
"""Where weights are that may have to be brought to another device, by the hook of their module, to be used."""


def main_device(device_map: Mapping[str, Any]) -> Any:
    """Return where modules are computed whose weights are on the CPU or on the disk."""
    return next((device for device in device_map.values() if device not in _ELSEWHERE), "cpu")


def device_of(name: str, device_map: Mapping[str, Any]) -> Any:
    """Return what a device map says of a tensor: what it says of the innermost module that it names.

    A tensor that is named by itself has no module whose hook would bring it, and is where modules are computed.
    """
    if device_map.get(name) in _ELSEWHERE:
        return main_device(device_map)
    while name not in device_map:
        name = name.rpartition(".")[0]
    return device_map[name]


def check_nesting(device_map: Mapping[str, Any]) -> None:
    """Make sure that no part of a module is on the disk and another one not, where the map names the module too."""
    for name, device in device_map.items():
        outer = name
        while outer:
            outer = outer.rpartition(".")[0]
            if outer in device_map and device_map[outer] != device and ON_DISK in (device, device_map[outer]):
                raise UnsupportedError(
                    "the device map names a module and a part of it, and one of them is on the disk",
                    expected="each of its parts by name, and not the module",
                    found=f"{outer!r}: {device_map[outer]!r} and {name!r}: {device!r}",
                )


def parts_of(
    model: nn.Module, found: Mapping[str, LazyTensor], device_map: Mapping[str, Any], *, offload_buffers: bool
) -> Parts:
    """Return what of a checkpoint is to be on each device, and on the disk."""
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
    """Load the part of each device, and let go of the memory of what stays on the disk."""
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
    """Hide all parameters and buffers of a model but some."""
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

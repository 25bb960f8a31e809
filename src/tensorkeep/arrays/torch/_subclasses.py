"""Tensors that wrap other tensors, such as torchao's quantized weights.

torch's protocol for them is `__tensor_flatten__`, which returns the tensors and the plain data, and
`__tensor_unflatten__`, which rebuilds. The latter is code of the class: it is called only for classes that the caller
allows, and for those of the closed registry in `_torchao`.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from math import prod
from typing import Any

import torch

from tensorkeep.arrays._attributes import CLASSES
from tensorkeep.arrays._base import EncodedObject, FindClass
from tensorkeep.arrays.torch._attributes import class_of, with_class
from tensorkeep.arrays.torch._torchao import check_parts, known_class
from tensorkeep.errors import FormatError
from tensorkeep.limits import MAX_I64, MAX_NDIM


def encode_subclass(value: Any) -> EncodedObject | None:
    """Return a tensor that wraps others as these and plain data; None for any other tensor."""
    if not hasattr(value, "__tensor_flatten__"):
        return None
    names, context = value.__tensor_flatten__()
    parts = {name: getattr(value, name) for name in names}
    settings: dict[str, Any] = {
        "class": f"{type(value).__module__}:{type(value).__qualname__}",
        "context": context,
        "shape": tuple(value.shape),
        "strides": tuple(value.stride()),
    }
    held_as = class_of(value)
    if held_as is not None:
        settings["mark"] = held_as  # "class" is taken
    if value.requires_grad:
        settings["requires_grad"] = True
    return EncodedObject("torch", "subclass", parts, settings)


def decode_subclass(
    parts: Mapping[str, Any], settings: Mapping[str, Any], find_class: FindClass
) -> torch.Tensor | None:
    """Return the tensor that was encoded; None if its class is not allowed."""
    name, held_as = settings["class"], settings.get("mark")
    shape, strides = _extents(settings["shape"]), _extents(settings["strides"])
    if type(name) is not str or (held_as is not None and held_as not in CLASSES):
        raise TypeError(f"class {name!r:.100}, held as {held_as!r:.100}")
    if len(shape) != len(strides) or prod(shape) > MAX_I64:
        raise ValueError(f"shape {shape}, strides {strides}")
    kind: Any = find_class(name) or known_class(name)
    if kind is None:
        return None
    if not (isinstance(kind, type) and issubclass(kind, torch.Tensor) and hasattr(kind, "__tensor_unflatten__")):
        raise TypeError(f"{name} is not a class of tensors that wrap others")
    tensor = _rebuilt(kind, parts, settings["context"], shape, strides)
    return with_class(tensor, held_as, settings.get("requires_grad") is True)


def _extents(items: Any) -> tuple[int, ...]:
    if type(items) not in {tuple, list} or len(items) > MAX_NDIM:
        raise TypeError(f"{items!r:.100} is not a shape")
    if any(type(item) is not int or not 0 <= item <= MAX_I64 for item in items):
        raise ValueError(f"{items!r:.100} is not a shape")
    return tuple(items)


def _rebuilt(
    kind: Any, parts: Mapping[str, Any], context: Any, shape: tuple[int, ...], strides: tuple[int, ...]
) -> torch.Tensor:
    devices = {part.device for part in parts.values()}
    if len(devices) != 1:
        raise ValueError(f"parts on {len(devices)} devices")
    try:
        tensor: Any = kind.__tensor_unflatten__(dict(parts), _moved(context, *devices), torch.Size(shape), strides)
        names = set(tensor.__tensor_flatten__()[0])
        if known_class(f"{kind.__module__}:{kind.__name__}") is kind:
            check_parts(tensor)
    except Exception as error:  # noqa: BLE001 - a class's own code may raise anything
        raise FormatError(f"the parts of a {kind.__name__} do not fit together", found=f"{error!s:.500}") from None
    if type(tensor) is not kind or tuple(tensor.shape) != shape or names != set(parts):
        raise FormatError(
            f"the parts of a {kind.__name__} make another tensor",
            expected=f"shape {shape} with parts {', '.join(parts)}",
            found=f"a {type(tensor).__name__} of shape {tuple(tensor.shape)} with parts {', '.join(names)}",
        )
    rebuilt: torch.Tensor = tensor
    return rebuilt


def _moved(context: Any, device: torch.device) -> Any:
    """Return plain data with every device replaced by the one that the parts are on now."""
    if type(context) is torch.device:
        return device
    if type(context) is dict:
        return {name: _moved(item, device) for name, item in context.items()}
    if type(context) in {list, tuple}:
        return type(context)(_moved(item, device) for item in context)
    if dataclasses.is_dataclass(context) and any(type(item) is torch.device for item in vars(context).values()):
        context = copy.copy(context)
        for name, item in vars(context).items():
            object.__setattr__(context, name, _moved(item, device))
    return context

"""What is data of torch but no dense tensor that a file holds as it is, taken apart and put together.

    kind                 parts                                       settings
    dtype, layout, memory_format, qscheme, device                    name: "torch.float32", "cuda:0"
    size                                                             shape
    generator            state: U8                                   device
    complex              data: F64 or F16, one dimension more
    sparse_coo           indices, values                             shape, is_coalesced
    sparse_csr, _csc, _bsr, _bsc
                         crow_indices and col_indices, or            shape
                         ccol_indices and row_indices; values
    per_tensor_affine    data: the integers                          dtype, scale, zero_point
    per_channel_affine, per_channel_affine_float_qparams
                         data, scales, zero_points                   dtype, axis
    nested               buffer, sizes, strides, storage_offsets
    jagged               values, offsets, lengths if it has them     _ragged_idx
    subclass             what its `__tensor_flatten__` names         class, context, shape, strides

Tensors have two more settings, where they are true: `requires_grad`, and `class` with `Parameter` or `Buffer` (of a
subclass it is called `mark`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from tensorkeep.arrays._attributes import CLASSES
from tensorkeep.arrays._base import EncodedObject, FindClass
from tensorkeep.arrays.torch._attributes import class_of, put_torch_class
from tensorkeep.arrays.torch._composed import INTEGERS_OF, TORCH_CONSTANTS, compose, torch_device
from tensorkeep.arrays.torch._subclasses import put_subclass_together, take_subclass_apart
from tensorkeep.dtypes import BY_TORCH
from tensorkeep.errors import FormatError, TensorkeepError, UnsupportedError
from tensorkeep.limits import MAX_I64

_FILE_DTYPES: Final = frozenset(dtype for name in BY_TORCH if (dtype := getattr(torch, name, None)) is not None)


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        tensor.layout is torch.strided
        and tensor.dtype in _FILE_DTYPES
        and not tensor.is_meta
        and not tensor.is_nested
    )


PLAIN_CLASSES: Final[dict[type, Callable[[Any], bool]]] = {torch.Tensor: _is_plain, torch.nn.Parameter: _is_plain}
"""Classes of tensors that a file may hold as they are."""

_LABELS: Final = {
    torch.dtype: "dtype",
    torch.layout: "layout",
    torch.memory_format: "memory_format",
    torch.qscheme: "qscheme",
    torch.device: "device",
}
_COMPRESSED: Final = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


def take_torch_apart(value: Any) -> EncodedObject | None:
    """Take apart what is data of torch."""
    if not isinstance(value, torch.Tensor):
        return _take_value_apart(value)
    if value.is_meta:
        return None
    if type(value) not in PLAIN_CLASSES and value.layout is not torch.jagged:
        return take_subclass_apart(value)
    tensor = value.detach()
    taken = _take_nested_apart(tensor) if tensor.is_nested else _take_tensor_apart(tensor)
    if taken is None:
        return None
    settings = dict(taken.settings)
    name = class_of(value)
    if name is not None:
        settings["class"] = name
    if value.requires_grad:
        settings["requires_grad"] = True
    return EncodedObject("torch", taken.kind, taken.parts, settings)


def _take_value_apart(value: Any) -> EncodedObject | None:
    kind = type(value)
    if kind in _LABELS:
        return EncodedObject("torch", _LABELS[kind], {}, {"name": str(value)})
    if kind is torch.Size:
        return EncodedObject("torch", "size", {}, {"shape": tuple(value)})
    if kind is torch.Generator:
        return EncodedObject("torch", "generator", {"state": value.get_state()}, {"device": str(value.device)})
    return None


def _take_tensor_apart(tensor: torch.Tensor) -> EncodedObject | None:
    if tensor.layout is torch.sparse_coo:
        parts = {"indices": tensor._indices(), "values": tensor._values()}
        settings = {"shape": tuple(tensor.shape), "is_coalesced": tensor.is_coalesced()}
        return EncodedObject("torch", "sparse_coo", parts, settings)
    if tensor.layout in _COMPRESSED:
        names = (*_COMPRESSED[tensor.layout], "values")
        parts = {name: getattr(tensor, name)() for name in names}
        return EncodedObject("torch", _kind_of(tensor.layout), parts, {"shape": tuple(tensor.shape)})
    if tensor.is_quantized:
        return _take_quantized_apart(tensor)
    if tensor.layout is torch.strided and tensor.dtype in {torch.complex32, torch.complex128}:
        data = torch.view_as_real(tensor.resolve_conj().resolve_neg())
        return EncodedObject("torch", "complex", {"data": data}, {})
    return None


def _kind_of(constant: Any) -> str:
    return str(constant).removeprefix("torch.")


def _take_quantized_apart(tensor: torch.Tensor) -> EncodedObject | None:
    integers = INTEGERS_OF.get(tensor.dtype)
    if integers is None:
        return None
    data = torch.empty(0, dtype=integers, device=tensor.device).set_(
        tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
    )
    kind, dtype = _kind_of(tensor.qscheme()), str(tensor.dtype)
    if kind == "per_tensor_affine":
        settings = {"dtype": dtype, "scale": tensor.q_scale(), "zero_point": tensor.q_zero_point()}
        return EncodedObject("torch", kind, {"data": data}, settings)
    if kind in {"per_channel_affine", "per_channel_affine_float_qparams"}:
        scales, zero_points = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
        parts = {"data": data, "scales": scales, "zero_points": zero_points}
        return EncodedObject("torch", kind, parts, {"dtype": dtype, "axis": tensor.q_per_channel_axis()})
    return None


def _take_nested_apart(tensor: Any) -> EncodedObject:
    if tensor.layout is torch.jagged:
        parts = {"values": tensor._values, "offsets": tensor._offsets, "lengths": tensor._lengths}
        present = {name: part.detach() for name, part in parts.items() if part is not None}
        return EncodedObject("torch", "jagged", present, {"_ragged_idx": tensor._ragged_idx})
    parts = {
        "buffer": tensor.values(),
        "sizes": tensor._nested_tensor_size(),
        "strides": tensor._nested_tensor_strides(),
        "storage_offsets": tensor._nested_tensor_storage_offsets(),
    }
    return EncodedObject("torch", "nested", parts, {})


def put_torch_together(
    kind: str, parts: Mapping[str, Any], settings: Mapping[str, Any], find_class: FindClass
) -> Any | None:
    """Put together what `take_torch_apart` gave."""
    if any(not isinstance(part, torch.Tensor) for part in parts.values()):
        raise FormatError(f"a part of torch's {kind} is no tensor")
    try:
        if kind in _LABELS.values():
            return _label(kind, settings)
        if kind == "size":
            return _size(settings)
        if kind == "generator":
            return _generator(parts, settings)
        if kind == "subclass":
            return put_subclass_together(parts, settings, find_class)
        tensor = compose(kind, parts, {name: item for name, item in settings.items() if name != "requires_grad"})
        if tensor is None:
            raise UnsupportedError(f"torch has no values of kind {kind!r:.100}", hint="A later version may know it")
        return _classed(tensor, settings)
    except TensorkeepError:
        raise
    except (RuntimeError, ValueError, TypeError, LookupError, OverflowError, AttributeError) as error:
        raise FormatError(f"what is said of torch's {kind} is malformed", found=f"{error!s:.500}") from None


def _classed(tensor: torch.Tensor, settings: Mapping[str, Any]) -> torch.Tensor:
    name = settings.get("class")
    if name is not None and name not in CLASSES:
        raise ValueError(f"class {name!r:.100}")
    return put_torch_class(tensor, name, settings.get("requires_grad") is True)


def _label(kind: str, settings: Mapping[str, Any]) -> Any:
    label = torch_device(settings["name"]) if kind == "device" else TORCH_CONSTANTS[settings["name"]]
    if _LABELS.get(type(label)) != kind:
        raise ValueError(f"no {kind} is called {settings['name']!r:.100}")
    return label


def _size(settings: Mapping[str, Any]) -> torch.Size:
    shape = settings["shape"]
    if type(shape) not in {tuple, list} or any(type(n) is not int or abs(n) > MAX_I64 for n in shape):
        raise TypeError("a size is no list of integers")
    return torch.Size(shape)


def _generator(parts: Mapping[str, Any], settings: Mapping[str, Any]) -> torch.Generator | None:
    state, device = parts["state"], torch_device(settings["device"])
    if device is None or state.dtype != torch.uint8 or state.ndim != 1:
        raise ValueError(f"a state of {state.dtype}, shape {tuple(state.shape)}, for {settings['device']!r:.100}")
    try:
        generator = torch.Generator(device)
    except RuntimeError:  # of a device that this machine has not
        return None
    generator.set_state(state.cpu().contiguous())
    return generator

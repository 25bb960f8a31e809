"""torch's own objects as plain data and tensors that a file can hold as they are.

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
    subclass             the tensors that it wraps                   class, context, shape, strides

Tensors can have two more settings: `requires_grad`, true; and `class`, `Parameter` or `Buffer`, which a subclass
calls `mark`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

from tensorkeep.arrays._attributes import CLASSES
from tensorkeep.arrays._base import EncodedObject, FindClass, ObjectCodec
from tensorkeep.arrays.torch._attributes import attributes_of, class_of, with_attributes, with_class
from tensorkeep.arrays.torch._composed import INTEGERS_OF, TORCH_CONSTANTS, compose, torch_device
from tensorkeep.arrays.torch._dense import PLAIN_CLASSES
from tensorkeep.arrays.torch._dtypes import torch_dtype
from tensorkeep.arrays.torch._subclasses import decode_subclass, encode_subclass
from tensorkeep.arrays.torch._torchao import known_class
from tensorkeep.dtypes import DType
from tensorkeep.errors import FormatError, TensorkeepError, UnsupportedError
from tensorkeep.limits import MAX_I64

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


class TorchCodec(ObjectCodec):
    """torch's constants, generators, and tensors that are not dense or have a dtype that the format lacks."""

    def attributes_of(self, tensor: torch.Tensor) -> dict[str, Any]:
        """Return what to save of a dense tensor beside its elements."""
        return attributes_of(tensor)

    def with_attributes(self, tensor: torch.Tensor, attributes: Mapping[str, Any]) -> torch.Tensor:
        """Return a dense tensor that has the attributes."""
        return with_attributes(tensor, attributes)

    def encode_object(self, value: Any) -> EncodedObject | None:
        """Return an object of torch as tensors and plain data."""
        if not isinstance(value, torch.Tensor):
            return _encode_value(value)
        if value.is_meta:
            return None
        if type(value) not in PLAIN_CLASSES and value.layout is not torch.jagged:
            return encode_subclass(value)
        tensor = value.detach()
        encoded = _encode_nested(tensor) if tensor.is_nested else _encode_tensor(tensor)
        if encoded is None:
            return None
        settings = dict(encoded.settings)
        name = class_of(value)
        if name is not None:
            settings["class"] = name
        if value.requires_grad:
            settings["requires_grad"] = True
        return EncodedObject("torch", encoded.kind, encoded.parts, settings)

    def decode_object(
        self, kind: str, parts: Mapping[str, Any], settings: Mapping[str, Any], find_class: FindClass
    ) -> Any | None:
        """Return the object that was encoded."""
        if any(not isinstance(part, torch.Tensor) for part in parts.values()):
            raise FormatError(f"a part of torch's {kind} is not a tensor")
        try:
            return _decode(kind, parts, settings, find_class)
        except TensorkeepError:
            raise
        except (RuntimeError, ValueError, TypeError, LookupError, OverflowError, AttributeError) as error:
            raise FormatError(f"torch's {kind} is malformed", found=f"{error!s:.500}") from None

    def known_class(self, name: str) -> type | None:
        """Return a class of torchao's closed registry."""
        return known_class(name)

    def hint(self, value: torch.Tensor) -> str:
        """Say what to do with a tensor that cannot be saved."""
        if type(value).__module__.startswith("torch") and bool(value.is_meta):  # runs no code of another class
            return "Device meta has no elements: give it memory with to_empty(device=...), and numbers"
        return super().hint(value)

    def composed(self, kind: str, parts: Mapping[str, Any], settings: Mapping[str, Any]) -> torch.Tensor | None:
        """Return a sparse, quantized or nested tensor."""
        return compose(kind, parts, settings)

    def labelled(self, kind: str, text: str) -> Any | None:
        """Return a device, or a constant such as a dtype."""
        return torch_device(text) if kind == "device" else TORCH_CONSTANTS.get(text)

    def without_data(self, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]) -> torch.Tensor:
        """Return a tensor on the device meta."""
        return torch.empty_strided(shape, strides, dtype=torch_dtype(dtype), device="meta")


def _encode_value(value: Any) -> EncodedObject | None:
    kind = type(value)
    if kind in _LABELS:
        return EncodedObject("torch", _LABELS[kind], {}, {"name": str(value)})
    if kind is torch.Size:
        return EncodedObject("torch", "size", {}, {"shape": tuple(value)})
    if kind is torch.Generator:
        return EncodedObject("torch", "generator", {"state": value.get_state()}, {"device": str(value.device)})
    return None


def _encode_tensor(tensor: torch.Tensor) -> EncodedObject | None:
    if tensor.layout is torch.sparse_coo:
        parts = {"indices": tensor._indices(), "values": tensor._values()}
        settings = {"shape": tuple(tensor.shape), "is_coalesced": tensor.is_coalesced()}
        return EncodedObject("torch", "sparse_coo", parts, settings)
    if tensor.layout in _COMPRESSED:
        names = (*_COMPRESSED[tensor.layout], "values")
        parts = {name: getattr(tensor, name)() for name in names}
        return EncodedObject("torch", _kind_of(tensor.layout), parts, {"shape": tuple(tensor.shape)})
    if tensor.is_quantized:
        return _encode_quantized(tensor)
    if tensor.layout is torch.strided and tensor.dtype in {torch.complex32, torch.complex128}:
        data = torch.view_as_real(tensor.resolve_conj().resolve_neg())
        return EncodedObject("torch", "complex", {"data": data}, {})
    return None


def _kind_of(constant: Any) -> str:
    return str(constant).removeprefix("torch.")


def _encode_quantized(tensor: torch.Tensor) -> EncodedObject | None:
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


def _encode_nested(tensor: Any) -> EncodedObject:
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


def _decode(kind: str, parts: Mapping[str, Any], settings: Mapping[str, Any], find_class: FindClass) -> Any | None:
    if kind in _LABELS.values():
        return _label(kind, settings)
    if kind == "size":
        return _size(settings)
    if kind == "generator":
        return _generator(parts, settings)
    if kind == "subclass":
        return decode_subclass(parts, settings, find_class)
    tensor = compose(kind, parts, {name: item for name, item in settings.items() if name != "requires_grad"})
    if tensor is None:
        raise UnsupportedError(f"torch has no objects of kind {kind!r:.100}", hint="A later version may know it")
    return _classed(tensor, settings)


def _classed(tensor: torch.Tensor, settings: Mapping[str, Any]) -> torch.Tensor:
    name = settings.get("class")
    if name is not None and name not in CLASSES:
        raise ValueError(f"class {name!r:.100}")
    return with_class(tensor, name, settings.get("requires_grad") is True)


def _label(kind: str, settings: Mapping[str, Any]) -> Any:
    label = torch_device(settings["name"]) if kind == "device" else TORCH_CONSTANTS[settings["name"]]
    if _LABELS.get(type(label)) != kind:
        raise ValueError(f"there is no {kind} {settings['name']!r:.100}")
    return label


def _size(settings: Mapping[str, Any]) -> torch.Size:
    shape = settings["shape"]
    if type(shape) not in {tuple, list} or any(type(n) is not int or abs(n) > MAX_I64 for n in shape):
        raise TypeError("a size is not a list of integers")
    return torch.Size(shape)


def _generator(parts: Mapping[str, Any], settings: Mapping[str, Any]) -> torch.Generator | None:
    state, device = parts["state"], torch_device(settings["device"])
    if device is None or state.dtype != torch.uint8 or state.ndim != 1:
        raise ValueError(f"a state of {state.dtype}, shape {tuple(state.shape)}, for {settings['device']!r:.100}")
    try:
        generator = torch.Generator(device)
    except RuntimeError:  # this machine has no such device
        return None
    generator.set_state(state.cpu().contiguous())
    return generator

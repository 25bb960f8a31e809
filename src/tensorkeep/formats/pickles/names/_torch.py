"""Names of torch in the closed table, each with the function of ours that replaces a call.

Arguments as in `torch/_utils.py`, `torch/_tensor.py` and `torch/serialization.py` of torch 2.13.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, cast

import msgspec

from tensorkeep.errors import LimitError, PickleError, UnsupportedError
from tensorkeep.formats.pickles.names._torch_labels import LAYOUTS, dtype_of_label
from tensorkeep.formats.pickles.names._torch_strided import (
    STORAGE_DTYPES,
    as_bool,
    check_view,
    is_count,
    strided_tensor,
)
from tensorkeep.formats.pickles.values import CompositeRecord, Label, Name, TensorRecord, Unknown, short_repr
from tensorkeep.limits import MAX_I64, MAX_NDIM

_COMPILER_MARKS = ("_dynamo_", "_has_dynamo_", "_specialize_on")
_QUANTIZED = {"I8": "qint8", "U8": "quint8", "I32": "qint32"}
_SPARSE_PARTS = {
    "torch.sparse_coo": ("indices", "values"),
    "torch.sparse_csr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_csc": ("ccol_indices", "row_indices", "values"),
    "torch.sparse_bsr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_bsc": ("ccol_indices", "row_indices", "values"),
}


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any) -> TensorRecord:
    return strided_tensor(storage, offset, shape, strides)


def _tensor_v2(
    storage: Any, offset: Any, shape: Any, strides: Any, requires_grad: Any, hooks: Any, metadata: Any = None
) -> TensorRecord:
    del hooks  # functions to call when gradients are computed: never data
    return strided_tensor(storage, offset, shape, strides, requires_grad=requires_grad, metadata=metadata)


def _tensor_v3(
    storage: Any,
    offset: Any,
    shape: Any,
    strides: Any,
    requires_grad: Any,
    hooks: Any,
    label: Any,
    metadata: Any = None,
) -> TensorRecord:
    del hooks
    dtype = dtype_of_label(label)
    if dtype.is_packed:  # torch counts pairs of elements, the dtype table single ones
        offset, shape, strides = _unpaired(offset, shape, strides)
    return strided_tensor(storage, offset, shape, strides, dtype, requires_grad=requires_grad, metadata=metadata)


def _unpaired(offset: Any, shape: Any, strides: Any) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    check_view(offset, shape, strides)
    if not shape or strides[-1] != 1:
        raise UnsupportedError(
            "a packed fp4 tensor is not contiguous in its last dimension", found=f"{shape}, strides {strides}"
        )
    return 2 * offset, (*shape[:-1], 2 * shape[-1]), (*(2 * stride for stride in strides[:-1]), 1)


def _meta_tensor(label: Any, shape: Any, strides: Any, requires_grad: Any) -> TensorRecord:
    check_view(0, shape, strides)
    return TensorRecord(None, dtype_of_label(label).name, 0, shape, strides, as_bool(requires_grad))


def _parameter(data: Any, requires_grad: Any, hooks: Any, state: Any = None) -> Any:
    del hooks
    if type(data) is TensorRecord:
        return msgspec.structs.replace(
            data, requires_grad=as_bool(requires_grad), kind="parameter", attributes=state or None
        )
    if type(data) is CompositeRecord:
        settings = data.settings | {"requires_grad": as_bool(requires_grad)}
        return CompositeRecord(data.kind, data.parts, settings)
    return Unknown("torch._utils", "_rebuild_parameter", (data, requires_grad, state))


def _from_type(function: Any, cls: Any, args: Any, state: Any) -> Any:
    """Describe a tensor of a subclass: the function that rebuilds it must be known, the class is only a label."""
    if type(function) is not Name or (function.module, function.name) not in CALLS or not isinstance(cls, Unknown):
        return Unknown("torch._tensor", "_rebuild_from_type_v2", (function, cls, args, state))
    if function.call is None or not function.name.startswith("_rebuild") or function.call is _from_type:
        raise PickleError(
            "a tensor is rebuilt by a function that does not rebuild tensors", found=function.qualified_name
        )
    if type(args) is not tuple:
        raise PickleError("the arguments of a call are not a tuple", found=type(args).__name__)
    tensor = function.call(*args)
    if type(state) is dict:  # torch.compile leaves marks on tensors
        state = {
            key: value for key, value in state.items() if type(key) is not str or not key.startswith(_COMPILER_MARKS)
        }
    if type(tensor) is TensorRecord:
        subclass = None if type(cls) is Name else (cls.module, cls.name)
        return msgspec.structs.replace(tensor, attributes=state or None, subclass=subclass)
    return tensor


def _device_tensor(data: Any, label: Any, device: Any, requires_grad: Any) -> Any:
    """Return the CPU tensor that a tensor of another device was saved as."""
    del label, device
    if type(data) is TensorRecord:
        return msgspec.structs.replace(data, requires_grad=as_bool(requires_grad))
    return data


def _sparse_tensor(layout: Any, data: Any) -> CompositeRecord:
    names = _SPARSE_PARTS.get(layout) if type(layout) is Label else None
    if names is None or type(data) is not tuple or len(data) not in {len(names) + 1, len(names) + 2}:
        raise PickleError("invalid sparse tensor", found=short_repr(layout))
    parts = {name: _part(part, name) for name, part in zip(names, data, strict=False)}
    settings = {"shape": _shape(data[len(names)]), "is_coalesced": data[-1] if len(data) > len(names) + 1 else None}
    if layout != "torch.sparse_coo":
        del settings["is_coalesced"]
    return CompositeRecord(str(layout).removeprefix("torch."), parts, settings)


def _quantized_tensor(
    storage: Any, offset: Any, shape: Any, strides: Any, quantizer: Any, requires_grad: Any, hooks: Any
) -> CompositeRecord:
    del hooks
    data = strided_tensor(storage, offset, shape, strides, requires_grad=requires_grad)
    if type(quantizer) is not tuple or not quantizer or type(quantizer[0]) is not Label:
        raise PickleError("a quantized tensor has no quantization scheme", found=short_repr(quantizer))
    dtype = _QUANTIZED.get(data.dtype)
    if dtype is None:
        raise PickleError("a quantized tensor is stored with a dtype that is not quantized", found=data.dtype)
    kind = str(quantizer[0]).removeprefix("torch.")
    settings: dict[str, Any] = {"dtype": Label(f"torch.{dtype}", "dtype"), "requires_grad": data.requires_grad}
    if kind == "per_tensor_affine" and len(quantizer) == 3:
        scale, zero_point = quantizer[1:]
        if type(scale) is not float or type(zero_point) is not int:
            raise PickleError("invalid scale or zero point of a quantized tensor", found=short_repr(quantizer[1:]))
        return CompositeRecord(kind, {"data": data}, settings | {"scale": scale, "zero_point": zero_point})
    if kind.startswith("per_channel_affine") and len(quantizer) == 4 and type(quantizer[3]) is int:
        parts = {
            "data": data,
            "scales": _part(quantizer[1], "scales"),
            "zero_points": _part(quantizer[2], "zero_points"),
        }
        return CompositeRecord(kind, parts, settings | {"axis": quantizer[3]})
    raise PickleError("a quantized tensor has an unknown quantization scheme", found=short_repr(quantizer))


def _nested_tensor(buffer: Any, sizes: Any, strides: Any, offsets: Any) -> CompositeRecord:
    parts = {"buffer": buffer, "sizes": sizes, "strides": strides, "storage_offsets": offsets}
    return CompositeRecord("nested", {name: _part(part, name) for name, part in parts.items()}, {})


def _jagged_tensor(arguments: Any) -> CompositeRecord:
    if type(arguments) is not dict or any(type(key) is not str for key in arguments):
        raise PickleError("invalid jagged tensor", found=type(arguments).__name__)
    parts = {name: value for name, value in arguments.items() if type(value) is TensorRecord}
    rest = {name: value for name, value in arguments.items() if name not in parts}
    if "values" not in parts or "offsets" not in parts:
        raise PickleError("a jagged tensor has no values and offsets", found=short_repr(list(arguments)))
    return CompositeRecord("jagged", parts, rest)


def _part(part: Any, name: str) -> TensorRecord:
    if type(part) is not TensorRecord:
        raise PickleError(f"a part of a composite tensor is not a tensor: {name}", found=type(part).__name__)
    return part


def _shape(value: Any) -> tuple[int, ...]:
    if type(value) is not tuple or not all(is_count(extent) for extent in value) or len(value) > MAX_NDIM:
        raise PickleError("invalid shape", found=short_repr(value))
    if prod(value) > MAX_I64:
        raise LimitError("a tensor has more elements than torch can hold", found=short_repr(value))
    return cast("tuple[int, ...]", value)


def _device(kind: Any, index: Any = None) -> Label:
    if type(kind) is not str or len(kind) > 100 or not (index is None or is_count(index)):
        raise PickleError("invalid device", found=short_repr(kind))
    return Label(kind if index is None else f"{kind}:{index}", "device")


def _layout(text: Any) -> Label:
    if type(text) is not str or text not in LAYOUTS:
        raise PickleError("unknown layout", found=short_repr(text))
    return LAYOUTS[text]


def _list_of(values: Any) -> list[Any]:
    """Return a TorchScript list, which is already a list."""
    if type(values) is not list:
        raise PickleError("a TorchScript list is not a list", found=short_repr(values))
    return values


def _tagged(value: Any, tag: Any) -> Any:
    """Return a TorchScript container without its type tag."""
    del tag
    return value


def _version(text: Any) -> str:
    if type(text) is not str:
        raise PickleError("a version is not text", found=type(text).__name__)
    return text


_MENTIONED = ("Tensor", "FloatTensor", *STORAGE_DTYPES)

CALLS: dict[tuple[str, str], Callable[..., Any] | None] = {
    **{(module, name): None for module in ("torch", "torch.cuda", "torch.storage") for name in _MENTIONED},
    ("torch.nn.parameter", "Parameter"): None,
    ("torch.nn.parameter", "Buffer"): None,
    ("torch.nested._internal.nested_tensor", "NestedTensor"): None,
    ("torch.storage", "_load_from_bytes"): None,
    ("torch", "Size"): _shape,
    ("torch", "device"): _device,
    ("torch._tensor", "_rebuild_from_type"): _from_type,
    ("torch._tensor", "_rebuild_from_type_v2"): _from_type,
    ("torch._utils", "_rebuild_device_tensor_from_cpu_tensor"): _device_tensor,
    ("torch._utils", "_rebuild_device_tensor_from_numpy"): _device_tensor,
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): _meta_tensor,
    ("torch._utils", "_rebuild_nested_tensor"): _nested_tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _parameter,
    ("torch._utils", "_rebuild_qtensor"): _quantized_tensor,
    ("torch._utils", "_rebuild_sparse_tensor"): _sparse_tensor,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor_v2,
    ("torch._utils", "_rebuild_tensor_v3"): _tensor_v3,
    ("torch._utils", "_rebuild_xla_tensor"): _device_tensor,
    ("torch.nested._internal.nested_tensor", "_rebuild_njt"): _jagged_tensor,
    **{("torch.jit._pickle", f"build_{kind}list"): _list_of for kind in ("bool", "double", "int", "tensor")},
    ("torch.jit._pickle", "restore_type_tag"): _tagged,
    ("torch.serialization", "_get_layout"): _layout,
    ("torch.torch_version", "TorchVersion"): _version,
}
"""Module and name to the function of ours that a call is replaced by; None if a call gives an `Unknown`."""

CHEAP: frozenset[Callable[..., Any] | None] = frozenset({_tensor, _tensor_v2, _tensor_v3, _meta_tensor})
"""Functions that are called thousands of times per file, and neither copy nor hash their arguments."""

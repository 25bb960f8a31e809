"""torch tensors made of several: sparse, quantized, nested, and complex of widths that the format lacks.

torch's constructors trust their arguments, and read out of bounds if these do not fit each other. So everything is
checked first: by torch's own invariant checks for sparse tensors, by this file for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Final

import torch

from tensorkeep.errors import FormatError
from tensorkeep.limits import MAX_I64, MAX_NDIM

TORCH_CONSTANTS: Final[dict[str, Any]] = {
    f"torch.{name}": value
    for name, value in vars(torch).items()
    if isinstance(value, torch.dtype | torch.layout | torch.qscheme | torch.memory_format)
}
"""Text such as `"torch.float32"` to the object that it names."""

INTEGERS_OF: Final = {torch.qint8: torch.int8, torch.quint8: torch.uint8, torch.qint32: torch.int32}
"""The integers that quantized dtypes are in memory; dtypes that pack several into a byte are not supported."""

_MAX_DEVICE: Final = 127
"""torch keeps the index of a device in a signed byte: a larger one would silently become another."""

_Parts = Mapping[str, torch.Tensor]
_Settings = Mapping[str, Any]


def compose(kind: str, parts: _Parts, settings: _Settings) -> torch.Tensor | None:
    """Make a tensor of its parts; None for an unknown kind."""
    make = _KINDS.get(kind)
    if make is None:
        return None
    try:
        for name, part in parts.items():
            _check_part(name, part)
        tensor = make(kind, parts, settings)
        has_gradients = tensor.is_floating_point() or tensor.is_complex()
        return tensor.requires_grad_() if settings.get("requires_grad") is True and has_gradients else tensor
    except (RuntimeError, ValueError, TypeError, LookupError, AssertionError, OverflowError) as error:
        raise FormatError(f"the parts of a {kind} tensor do not fit together", found=f"{error!s:.500}") from None


def _check_part(name: str, part: torch.Tensor) -> None:
    """Refuse a part with fewer bytes than its shape needs: an expanded one of 2^60 elements would be walked."""
    if part.device.type == "meta":
        raise ValueError(f"{name} has no data")
    if part.numel() * part.element_size() > part.untyped_storage().nbytes():
        raise ValueError(
            f"{name} is expanded: {part.numel():,} elements over {part.untyped_storage().nbytes():,} bytes"
        )


def torch_device(text: str) -> torch.device | None:
    """Return a device; None if torch has none of that name."""
    index = text.partition(":")[2]
    if len(index) > 3 or (index.isdigit() and int(index) > _MAX_DEVICE):
        return None
    try:
        return torch.device(text)
    except RuntimeError:
        return None


def _sparse_coo(kind: str, parts: _Parts, settings: _Settings) -> torch.Tensor:
    del kind
    return torch.sparse_coo_tensor(
        parts["indices"],
        parts["values"],
        settings["shape"],
        is_coalesced=settings["is_coalesced"],
        check_invariants=True,
    )


def _sparse_compressed(kind: str, parts: _Parts, settings: _Settings) -> torch.Tensor:
    compressed, plain = list(parts)[:2]
    return torch.sparse_compressed_tensor(
        parts[compressed],
        parts[plain],
        parts["values"],
        settings["shape"],
        layout=TORCH_CONSTANTS[f"torch.{kind}"],
        check_invariants=True,
    )


def _quantized(kind: str, parts: _Parts, settings: _Settings) -> torch.Tensor:
    data = parts["data"]
    dtype = TORCH_CONSTANTS[settings["dtype"]]
    if INTEGERS_OF.get(dtype) != data.dtype:
        raise ValueError(f"{data.dtype} elements cannot be {dtype}")
    limits = torch.iinfo(data.dtype)
    if kind == "per_tensor_affine":
        if not limits.min <= settings["zero_point"] <= limits.max:
            raise ValueError(f"zero_point is {settings['zero_point']}")
        tensor = torch._empty_affine_quantized(
            data.shape, scale=settings["scale"], zero_point=settings["zero_point"], dtype=dtype, device=data.device
        )
    else:
        axis, scales, zero_points = settings["axis"], parts["scales"], parts["zero_points"]
        if not 0 <= axis < data.ndim or any(part.shape != (data.shape[axis],) for part in (scales, zero_points)):
            raise ValueError(f"{tuple(scales.shape)} scales along axis {axis} of shape {tuple(data.shape)}")
        tensor = torch._empty_per_channel_affine_quantized(
            data.shape, scales=scales, zero_points=zero_points, axis=axis, dtype=dtype, device=data.device
        )
    return tensor.set_(data.untyped_storage(), data.storage_offset(), data.shape, data.stride())


def _complex(kind: str, parts: _Parts, settings: _Settings) -> torch.Tensor:
    del kind, settings
    data = parts["data"]
    if data.dtype not in {torch.float16, torch.float64} or data.shape[-1:] != (2,):
        raise ValueError(f"real and imaginary parts of {data.dtype}, shape {tuple(data.shape)}")
    if data.storage_offset() % 2 or data.stride(-1) != 1 or any(stride % 2 for stride in data.stride()[:-1]):
        data = data.contiguous().clone()
    return torch.view_as_complex(data)


def _nested(kind: str, parts: _Parts, settings: _Settings) -> torch.Tensor:
    del kind, settings
    buffer, sizes, strides, offsets = (parts[name] for name in ("buffer", "sizes", "strides", "storage_offsets"))
    if buffer.ndim != 1 or not buffer.is_contiguous():
        raise ValueError("the buffer is not contiguous")
    if any(part.dtype != torch.int64 for part in (sizes, strides, offsets)):
        raise ValueError("sizes, strides and offsets are not int64")
    if not offsets.numel():
        return torch.nested.nested_tensor([], dtype=buffer.dtype)
    is_table = sizes.ndim == 2 and sizes.shape[1] < MAX_NDIM and sizes.shape == strides.shape
    if not is_table or offsets.shape != sizes.shape[:1]:
        raise ValueError(f"sizes, strides and offsets of shapes {sizes.shape}, {strides.shape}, {offsets.shape}")
    for size, stride, offset in zip(sizes.tolist(), strides.tolist(), offsets.tolist(), strict=True):
        if min(offset, *size, *stride, 0) < 0 or prod(size) > MAX_I64:
            raise ValueError("a size, stride or offset is negative, or too large")
        reach = offset + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True))
        if 0 not in size and reach >= buffer.numel():
            raise ValueError(f"a part reaches element {reach} of {buffer.numel()}")
    return torch._nested_view_from_buffer(buffer, sizes, strides, offsets)


def _jagged(kind: str, parts: _Parts, settings: _Settings) -> torch.Tensor:
    del kind
    values, offsets, lengths = parts["values"], parts["offsets"], parts.get("lengths")
    axis = settings.get("_ragged_idx", 1)
    if type(axis) is not int or not 1 <= axis <= values.ndim or offsets.ndim != 1 or not len(offsets):
        raise ValueError(f"offsets of shape {tuple(offsets.shape)} along axis {axis}")
    if any(part is not None and part.dtype not in {torch.int32, torch.int64} for part in (offsets, lengths)):
        raise ValueError("offsets or lengths are not integers")
    starts = offsets.tolist()
    stops = starts[1:] if lengths is None else [a + n for a, n in zip(starts, lengths.tolist(), strict=False)]
    if any(not 0 <= start <= stop <= values.shape[axis - 1] for start, stop in zip(starts, stops, strict=False)):
        raise ValueError(f"a part reaches beyond {values.shape[axis - 1]} rows")
    if lengths is None and (starts[0] != 0 or starts[-1] != values.shape[axis - 1]):
        raise ValueError(f"the parts do not cover all {values.shape[axis - 1]} rows")
    if lengths is not None and lengths.shape != (len(offsets) - 1,):
        raise ValueError(f"lengths of shape {tuple(lengths.shape)}")
    return torch.nested.nested_tensor_from_jagged(values, offsets, lengths, jagged_dim=axis)


_KINDS: dict[str, Callable[[str, _Parts, _Settings], torch.Tensor]] = {
    "complex": _complex,
    "jagged": _jagged,
    "nested": _nested,
    "per_channel_affine": _quantized,
    "per_channel_affine_float_qparams": _quantized,
    "per_tensor_affine": _quantized,
    "sparse_bsc": _sparse_compressed,
    "sparse_bsr": _sparse_compressed,
    "sparse_coo": _sparse_coo,
    "sparse_csc": _sparse_compressed,
    "sparse_csr": _sparse_compressed,
}

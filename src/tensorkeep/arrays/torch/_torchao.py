"""The closed registry: torchao's tensors that may be rebuilt without the caller allowing their class.

Kernels trust that the parts of such a tensor fit each other, so this is checked when one is rebuilt. Tensors whose
bytes only a kernel understands (tile-packed, preshuffled, opaque, 2:4 sparse) cannot be checked and are not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from math import prod
from types import ModuleType
from typing import Any, Final

import torch

_CONTEXTS: Final = (
    "Float8MMConfig",
    "IntxUnpackedToInt8TensorActivationQuantization",
    "KernelPreference",
    "MappingType",
    "PerAxis",
    "PerBlock",
    "PerGroup",
    "PerRow",
    "PerTensor",
    "PerToken",
    "QuantizeTensorToFloat8Kwargs",
    "QuantizeTensorToInt8Kwargs",
    "SubclassTensorArgs",
)
"""Classes of the plain data beside their parts."""


def known_class(name: str) -> type | None:
    """Return a class of the registry; None for any other name."""
    module, _, class_name = name.partition(":")
    if module.partition(".")[0] != "torchao" or (class_name not in _CHECKS and class_name not in _CONTEXTS):
        return None
    return _classes().get(class_name)


@cache
def _classes() -> dict[str, type]:
    names = (*_CHECKS, *_CONTEXTS)
    return {name: getattr(module, name) for module in _modules() for name in names if hasattr(module, name)}


def _modules() -> Iterator[ModuleType]:
    """Import the modules that have the classes; a version of torchao may lack some."""
    with suppress(ImportError):
        from torchao.quantization import granularity, quant_primitives

        yield from (granularity, quant_primitives)
    with suppress(ImportError):
        from torchao.quantization.quantize_.common import kernel_preference

        yield kernel_preference
    with suppress(ImportError):
        from torchao.float8 import inference

        yield inference
    with suppress(ImportError):
        from torchao.quantization.quantize_.workflows.float8 import float8_tensor

        yield float8_tensor
    with suppress(ImportError):
        from torchao.quantization.quantize_.workflows.int4 import int4_plain_int32_tensor, int4_tensor

        yield from (int4_plain_int32_tensor, int4_tensor)
    with suppress(ImportError):
        from torchao.quantization.quantize_.workflows.int8 import int8_tensor

        yield int8_tensor
    with suppress(ImportError):
        from torchao.quantization.quantize_.workflows.intx import intx_unpacked_to_int8_tensor

        yield intx_unpacked_to_int8_tensor
    with suppress(ImportError):
        from torchao.quantization.quantize_.workflows.nf4 import nf4_tensor

        yield nf4_tensor
    with suppress(ImportError):
        from torchao.optim import subclass_4bit, subclass_8bit, subclass_fp8

        yield from (subclass_4bit, subclass_8bit, subclass_fp8)


def check_parts(tensor: Any) -> None:
    """Check that the parts of a tensor fit each other."""
    for name in tensor.__tensor_flatten__()[0]:
        dtype = getattr(tensor, name).dtype
        _require(not dtype.is_complex and dtype != torch.bool, f"{name} is {dtype}")
    _CHECKS[type(tensor).__name__](tensor)


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(what)


def _check_scale(data: torch.Tensor, scale: torch.Tensor) -> None:
    """Check that there is one number for each block of the data, or one for all of it."""
    fits = scale.ndim == data.ndim and all(
        n > 0 and extent % n == 0 for n, extent in zip(scale.shape, data.shape, strict=True)
    )
    _require(fits or scale.numel() == 1, f"scale of shape {tuple(scale.shape)} for {tuple(data.shape)}")


def _check_float8(tensor: Any) -> None:
    _require(tensor.qdata.dtype in {torch.float8_e4m3fn, torch.float8_e5m2}, f"qdata is {tensor.qdata.dtype}")
    _require(tensor.scale.is_floating_point(), f"scale is {tensor.scale.dtype}")
    _check_scale(tensor.qdata, tensor.scale)


def _check_int8(tensor: Any) -> None:
    _require(tensor.qdata.dtype == torch.int8, f"qdata is {tensor.qdata.dtype}")
    _require(tensor.scale.is_floating_point(), f"scale is {tensor.scale.dtype}")
    _check_scale(tensor.qdata, tensor.scale)
    zero_point = tensor.zero_point
    _require(zero_point is None or zero_point.shape == tensor.scale.shape, "zero_point and scale differ in shape")


def _check_int4(tensor: Any) -> None:
    _require(tensor.qdata.dtype in {torch.int8, torch.uint8}, f"qdata is {tensor.qdata.dtype}")
    _check_groups(tensor, (*tensor.qdata.shape[:-1], 2 * tensor.qdata.shape[-1]))


def _check_int4_in_int32(tensor: Any) -> None:
    _require(tensor.qdata.dtype == torch.int32, f"qdata is {tensor.qdata.dtype}")
    _check_groups(tensor, (*tensor.qdata.shape[:-1], 8 * tensor.qdata.shape[-1]))


def _check_groups(tensor: Any, shape: tuple[int, ...]) -> None:
    """Check numbers packed along the last dimension, and scales of shape (..., groups in a row, rows)."""
    *outer, rows, columns = shape
    group = tensor.block_size[-1]
    _require(tuple(tensor.shape) == shape, f"qdata is of shape {shape}, unpacked")
    _require(type(group) is int and group > 0 and columns % group == 0, f"block_size {tensor.block_size}")
    expected = (*outer, columns // group, rows)
    _require(tuple(tensor.scale.shape) == expected, f"scale of shape {tuple(tensor.scale.shape)}")
    _require(tuple(tensor.zero_point.shape) == expected, f"zero_point of shape {tuple(tensor.zero_point.shape)}")


def _check_intx(tensor: Any) -> None:
    # Its class checks all of this by assertions, which -O switches off.
    _require(tensor.qdata.dtype == torch.int8, f"qdata is {tensor.qdata.dtype}")
    _check_scale(tensor.qdata, tensor.scale)
    _check_scale(tensor.qdata, tensor.zero_point)


def _check_nf4(tensor: Any) -> None:
    numbers = prod(tensor.shape)
    shapes = {
        "quantized_data": (numbers // 2,),
        "quantized_scalers": (tensor.n_blocks,),
        "quantization_factor": (tensor.n_blocks // tensor.scaler_block_size,),
        "scaler_mean": (),
        "nf4": (16,),
    }
    for name, shape in shapes.items():
        _require(tuple(getattr(tensor, name).shape) == shape, f"{name} of shape {tuple(getattr(tensor, name).shape)}")
    _require(tensor.nf4.is_floating_point(), f"nf4 is {tensor.nf4.dtype}")
    _require(tensor.quantized_scalers.dtype == torch.int8, f"quantized_scalers are {tensor.quantized_scalers.dtype}")
    _require(tensor.quantized_data.dtype == torch.uint8, f"quantized_data is {tensor.quantized_data.dtype}")
    _require(tensor.n_blocks * tensor.block_size == numbers, f"{tensor.n_blocks} blocks of {tensor.block_size}")


def _check_blockwise(tensor: Any) -> None:
    n_scales = tensor.scale.numel()
    _require(tensor.scale.is_floating_point(), f"scale is {tensor.scale.dtype}")
    _require(tensor.codes.numel() % n_scales == 0, f"{n_scales} scales for {tensor.codes.numel()} codes")


def _check_8_bits(tensor: Any) -> None:
    _require(tensor.codes.dtype == torch.uint8, f"codes are {tensor.codes.dtype}")
    _require(tuple(tensor.qmap.shape) == (256,), f"qmap of shape {tuple(tensor.qmap.shape)}")
    _check_blockwise(tensor)


def _check_4_bits(tensor: Any) -> None:
    _require(tensor.codes.dtype == torch.uint8, f"codes are {tensor.codes.dtype}")
    _require(tuple(tensor.qmap.shape) == (16,), f"qmap of shape {tuple(tensor.qmap.shape)}")
    _require(2 * tensor.codes.numel() == prod(tensor.shape), f"{tensor.codes.numel()} pairs of codes")
    _check_blockwise(tensor)


_CHECKS: Final[dict[str, Callable[[Any], None]]] = {
    "Float8Tensor": _check_float8,
    "Int4PlainInt32Tensor": _check_int4_in_int32,
    "Int4Tensor": _check_int4,
    "Int8Tensor": _check_int8,
    "IntxUnpackedToInt8Tensor": _check_intx,
    "NF4Tensor": _check_nf4,
    "OptimState4bit": _check_4_bits,
    "OptimState8bit": _check_8_bits,
    "OptimStateFp8": _check_blockwise,
}
"""Name of a tensor's class to the check of its parts."""

"""Layouts of another method than the configuration says, by which loaders choose names and numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final

from tensorkeep.quantized._config import QuantConfig
from tensorkeep.quantized._record import LayoutFinding, QuantizedTensor

_COMPRESSED: Final = ("pack", "int", "float", "nvfp4-pack", "mxfp4-pack", "mxfp8")

_LAYOUTS: Final = {
    "gptq": ("gptq",),
    "awq": ("awq",),
    "compressed-tensors": tuple(f"{name}-quantized" for name in _COMPRESSED),
    "modelopt": (
        "modelopt-nvfp4",
        "modelopt-fp8",
        "float-quantized",
        "int-quantized",
        "block-fp8",
        "mxfp8-quantized",
    ),
    "fp8": ("block-fp8", "float-quantized", "scaled-fp8", "mxfp8-quantized"),
    "fbgemm_fp8": ("float-quantized",),
    "mxfp4": ("mxfp4",),
    "bitsandbytes": ("bitsandbytes-4bit", "bitsandbytes-int8"),
    "torchao": ("torchao-Float8Tensor", "torchao-Int8Tensor", "torchao-IntxUnpackedToInt8Tensor"),
}
"""Method to the layouts that its loaders read; of other methods nothing is known here."""

_KNOWN: Final = frozenset(chain.from_iterable(_LAYOUTS.values()))
"""Layouts that some method has: files of llama.cpp are often beside the configuration of another checkpoint."""


def examine_method(tensors: Mapping[str, QuantizedTensor], config: QuantConfig) -> Iterator[LayoutFinding]:
    """Give the layouts that loaders of the method do not read; it is an error if they read none of the tensors."""
    readable = _LAYOUTS.get(config.method or "")
    if readable is None:
        return
    others = {name: one for name, one in tensors.items() if one.layout in _KNOWN and one.layout not in readable}
    for name, tensor in others.items():
        yield LayoutFinding(
            "method",
            f"tensor `{name}` is in a layout of another method than {config.source} says",
            name,
            expected=f"a layout of {config.method}",
            found=tensor.layout,
            is_error=len(others) == len(tensors),
        )

"""Whether the stored numbers of tensors are the weights: quantized weights need scales too."""

from __future__ import annotations

from collections.abc import Collection

from tensorkeep.dtypes import HOLDS_QUANTIZED
from tensorkeep.errors import RefusedError
from tensorkeep.quantized import Layouts, QuantizedTensor, layouts
from tensorkeep.tensors import LazyTensors


def refuse_quantized(tensors: LazyTensors, names: Collection[str] | None = None) -> None:
    """Refuse to compute with the stored numbers of quantized tensors: with any, or with some by name."""
    computed = set(tensors if names is None else names)
    found = _quantized_in(tensors)
    for one in found.tensors.values():
        if not computed.isdisjoint(one.parts.values()):
            raise _refused(tensors, one.name, _form(one))
    for name, finding in found.broken.items():
        if name in computed:
            raise _refused(tensors, name, str(finding))


def refuse_torn(tensors: LazyTensors, rearranged: Collection[str]) -> None:
    """Refuse to rearrange some stored tensors of a quantized one, such as its blocks, and to leave its scales."""
    for one in _quantized_in(tensors).tensors.values():
        n_changed = sum(part in rearranged for part in one.parts.values())
        if 0 < n_changed < len(one.parts):
            raise _refused(tensors, one.name, _form(one))


def _quantized_in(tensors: LazyTensors) -> Layouts:
    """Return the quantized tensors; configurations are read only if there can be any."""
    if any(lazy.is_quantized or lazy.dtype in HOLDS_QUANTIZED for lazy in tensors.values()):
        return layouts(tensors)
    return Layouts(None, {})


def _form(tensor: QuantizedTensor) -> str:
    return f"{tensor.layout}: {tensor.scheme}"


def _refused(tensors: LazyTensors, name: str, found: str) -> RefusedError:
    return RefusedError(
        f"tensor `{name}` is quantized: without the scales, its numbers are not the weights",
        path=tensors.path,
        tensor=name,
        expected="tensors that are not quantized",
        found=found,
        hint="Use tensorkeep.quantized.dequantize(file), or `tensorkeep convert --dequantize bf16` first",
    )

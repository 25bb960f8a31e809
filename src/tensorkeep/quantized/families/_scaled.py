"""Numbers of eight bits with scales: compressed-tensors, ModelOpt, DeepSeek's blocks, LLM.int8() and others. Pure.

The scale of an `F8` or `I8` tensor has its name with `_scale` added, or DeepSeek's `_scale_inv`: both mean a number
to multiply by. One scale may be for the whole tensor, for a row, or for a block.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from tensorkeep.arrays import Arithmetic
from tensorkeep.quantized._blocks import Box, block_of, scaled, scales_at, spread
from tensorkeep.quantized._numbers import Array, Floats, numbers, powers_of_two
from tensorkeep.quantized._record import Headers, QuantizedTensor, Stored, wrong
from tensorkeep.quantized._settings import Settings, module_of
from tensorkeep.quantized.families._base import SCALES, Layout, Take, before_inputs, require_scales

_FORMS: Final = {"I8": "int", "F8_E4M3": "e4m3", "F8_E5M2": "e5m2", "F8_E4M3FNUZ": "e4m3", "F8_E5M2FNUZ": "e5m2"}
_SCALES: Final = SCALES | {"F8_E8M0", "U8"}
_SCALING_METHODS: Final = frozenset(("fp8", "fbgemm_fp8", "modelopt", "compressed-tensors"))
"""Methods by which each tensor of these dtypes has scales."""

_N_ENDINGS: Final = 64
"""Ends of names that are remembered: the layers of a model have few."""

_MX_BLOCK: Final = 32
_DEEPSEEKS_BLOCK: Final = (128, 128)
_PER_127: Final = 7.874015718698502e-3
"""What bitsandbytes multiplies by where others divide by 127."""


def _recognize(name: str, headers: Headers, settings: Settings) -> QuantizedTensor | None:
    data, module = headers[name], module_of(name)
    if len(data.shape) < 2:
        return None
    parts = _parts(name, headers, settings)
    if "scales" not in parts:
        if settings.config.method not in _SCALING_METHODS or settings.ignores(module):
            return None
        raise wrong(name, "has no scales", parts, kind="missing", expected=f"`{name}_scale`", found=str(data))
    if parts["scales"] == f"{name}_scale" and f"{name}_scale_inv" in headers:
        raise wrong(
            name, "has a scale and its reciprocal", parts, kind="reciprocal", found="`_scale` and `_scale_inv`"
        )
    scales = headers[parts["scales"]]
    if scales.dtype not in _SCALES:
        require_scales(name, "scales", parts, headers)
    group = settings.group_of(module)
    declared = settings.block or (group and (group.block or (group.group_size and (1, group.group_size)))) or None
    is_inverse = parts["scales"].endswith("_scale_inv")
    usual = _DEEPSEEKS_BLOCK if is_inverse else None
    block = block_of(name, data.shape, scales, parts, declared=declared, usual=usual)
    if scales.dtype == "U8" and (data.dtype == "I8" or block[-1] != min(_MX_BLOCK, data.shape[-1])):
        require_scales(name, "scales", parts, headers)  # bytes are exponents only in MX blocks
    if "zeros" in parts and headers[parts["zeros"]].shape != scales.shape:
        raise wrong(
            name,
            "has zero points that do not fit its scales",
            parts,
            expected=str(list(scales.shape)),
            found=str(headers[parts["zeros"]]),
        )
    if parts["scales"] == f"{module}.SCB":
        _check_order(name, parts, settings)
    layout = _layout(parts["scales"], data, scales, settings)
    notes = {"scales": scales.shape, "dtype": data.dtype, "scale_dtype": scales.dtype}
    return QuantizedTensor(name, layout, data.shape, 8, _FORMS[data.dtype], block, parts, notes)


def _parts(name: str, headers: Headers, settings: Settings) -> dict[str, str]:
    """Return the roles of what is stored beside a tensor; the first name of a role counts."""
    last = name.rpartition(".")[2]
    start = name.removesuffix(last)
    found = {"data": name}
    for role, part in _candidates(last, settings.last_parts, is_in_module=bool(start)):
        if start + part in headers:
            found.setdefault(role, start + part)
    return found


@lru_cache(_N_ENDINGS)
def _candidates(last: str, last_parts: frozenset[str], *, is_in_module: bool) -> list[tuple[str, str]]:
    """Return the roles of parts, and what their names end with, from the end of the tensor's name."""
    inputs = before_inputs(last)
    of_module = [("scales", "SCB"), ("format", "weight_format"), ("scales", "scale_weight")]
    candidates = [
        ("scales", f"{last}_scale"),
        ("scales", f"{last}_scale_inv"),
        ("zeros", f"{last}_zero_point"),
        *(of_module if last == "weight" and is_in_module else ()),
        ("input_scale", f"{inputs}input_scale"),
        ("input_scale", f"{inputs}activation_scale"),
        ("input_zeros", f"{inputs}input_zero_point"),
    ]
    return [(role, part) for role, part in candidates if part in last_parts]


def _layout(scale_name: str, data: Stored, scales: Stored, settings: Settings) -> str:
    if scale_name.endswith(".SCB"):
        return "bitsandbytes-int8"
    if scale_name.endswith("_scale_inv"):
        return "block-fp8"
    if scale_name.endswith(".scale_weight"):
        return "scaled-fp8"
    if scales.dtype in {"U8", "F8_E8M0"}:
        return "mxfp8-quantized"
    if data.dtype == "I8":
        return "int-quantized"
    return "modelopt-fp8" if settings.config.method == "modelopt" else "float-quantized"


def _check_order(name: str, parts: dict[str, str], settings: Settings) -> None:
    """Refuse the orders in which old GPUs wanted LLM.int8()."""
    number = settings.notes.get(parts.get("format", ""), [0])
    if number and number[0]:
        raise wrong(
            name,
            "is in an order for old GPUs",
            parts,
            kind="unsupported",
            expected="0, by rows",
            found=f"{number[0]}",
        )


def _decode(ops: Arithmetic, tensor: QuantizedTensor, take: Take, box: Box) -> Floats:
    stored = take("data", tuple(slice(axis.start, axis.stop) for axis in box))
    values = numbers(ops, stored, tensor.notes["dtype"])
    at = scales_at(box, tensor.block, tensor.shape, tensor.notes["scales"])
    if "zeros" in tensor.parts:
        values -= spread(ops, ops.floats(take("zeros", at)), box, tensor.block)
    multipliers = _multipliers(ops, take("scales", at), tensor.notes["scale_dtype"])
    values = scaled(ops, values, multipliers, box, tensor.block)
    return values * _PER_127 if tensor.layout == "bitsandbytes-int8" else values


def _multipliers(ops: Arithmetic, scales: Array, dtype: str) -> Floats:
    return powers_of_two(ops, scales) if dtype == "U8" else numbers(ops, scales, dtype)


SCALED = Layout(
    (
        "float-quantized",
        "int-quantized",
        "mxfp8-quantized",
        "modelopt-fp8",
        "block-fp8",
        "scaled-fp8",
        "bitsandbytes-int8",
    ),
    (),
    _recognize,
    _decode,
    frozenset(_FORMS),
)

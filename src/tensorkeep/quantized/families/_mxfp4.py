"""MXFP4: two numbers of four bits in a byte, and an exponent for 32. Pure.

compressed-tensors keeps rows; gpt-oss keeps blocks of 16 bytes of the transposed weight of each expert.
"""

from __future__ import annotations

from math import prod

from tensorkeep.arrays import Arithmetic
from tensorkeep.quantized._blocks import Box, scaled, scales_at
from tensorkeep.quantized._numbers import E2M1, Floats, powers_of_two
from tensorkeep.quantized._record import Headers, QuantizedTensor, parts_of, wrong
from tensorkeep.quantized._settings import Settings
from tensorkeep.quantized.families._base import Layout, Take, cut, widened

_BLOCK = 32


def _compressed(name: str, headers: Headers, settings: Settings) -> QuantizedTensor | None:
    parts = parts_of(headers, (("data", f"{name}_packed"), ("scales", f"{name}_scale")))
    data = headers[parts["data"]]
    if data.dtype != "U8" or f"{name}_global_scale" in headers:
        return None
    if "scales" not in parts:
        if settings.config.method is None and not name.endswith("weight"):
            return None
        raise wrong(name, "has no scales", parts, kind="missing", expected=f"`{name}_scale`")
    scales = headers[parts["scales"]]
    shape = (*data.shape[:-1], 2 * data.shape[-1]) if data.shape else ()
    grid = (*data.shape[:-1], data.shape[-1] * 2 // _BLOCK) if data.shape else ()
    if len(shape) < 2 or shape[-1] % _BLOCK or scales.shape != grid or scales.dtype not in {"U8", "F8_E8M0"}:
        raise wrong(
            name, "has scales that do not fit its shape", parts, expected=f"U8 {list(grid)}", found=str(scales)
        )
    notes = {"scales": grid}
    block = (*(1,) * (len(shape) - 1), _BLOCK)
    return QuantizedTensor(name, "mxfp4-pack-quantized", shape, 4, "e2m1", block, parts, notes)


def _decode_rows(ops: Arithmetic, tensor: QuantizedTensor, take: Take, box: Box) -> Floats:
    *rows, columns = box
    pairs = widened(columns, _BLOCK)
    packed = take(
        "data", (*(slice(axis.start, axis.stop) for axis in rows), slice(pairs.start // 2, pairs.stop // 2))
    )
    wide = (*rows, pairs)
    exponents = take("scales", scales_at(wide, tensor.block, tensor.shape, tensor.notes["scales"]))
    values = scaled(ops, ops.pairs(E2M1, packed), powers_of_two(ops, exponents), wide, tensor.block)
    return values[..., cut(columns, pairs)]


def _of_experts(name: str, headers: Headers, settings: Settings) -> QuantizedTensor | None:  # noqa: ARG001
    parts = parts_of(headers, (("data", f"{name}_blocks"), ("scales", f"{name}_scales")))
    data, scales = headers[parts["data"]], headers.get(parts.get("scales", ""))
    if data.dtype != "U8" or len(data.shape) < 3 or data.shape[-1] != _BLOCK // 2:
        return None
    if scales is None:
        raise wrong(name, "has no scales", parts, kind="missing", expected=f"`{name}_scales`")
    if scales.shape != data.shape[:-1] or scales.dtype not in {"U8", "F8_E8M0"} or not prod(data.shape):
        raise wrong(
            name,
            "has scales that do not fit its blocks",
            parts,
            expected=f"U8 {list(data.shape[:-1])}",
            found=str(scales),
        )
    *experts, n_out, n_blocks = scales.shape
    shape = (*experts, n_blocks * _BLOCK, n_out)
    return QuantizedTensor(name, "mxfp4", shape, 4, "e2m1", (*(1,) * len(experts), _BLOCK, 1), parts)


def _decode_blocks(ops: Arithmetic, tensor: QuantizedTensor, take: Take, box: Box) -> Floats:  # noqa: ARG001
    *experts, inputs, outputs = box
    wide = widened(inputs, _BLOCK)
    at = (
        *(slice(axis.start, axis.stop) for axis in (*experts, outputs)),
        slice(wide.start // _BLOCK, wide.stop // _BLOCK),
    )
    values = ops.pairs(E2M1, take("data", at))
    values *= powers_of_two(ops, take("scales", at))[..., None]
    return values.reshape(*values.shape[:-2], -1)[..., cut(inputs, wide)].swapaxes(-1, -2)


MXFP4_PACKED = Layout(("mxfp4-pack-quantized",), ("_packed",), _compressed, _decode_rows)
MXFP4_EXPERTS = Layout(("mxfp4",), ("_blocks",), _of_experts, _decode_blocks)

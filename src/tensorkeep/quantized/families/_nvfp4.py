"""NVFP4: two numbers of four bits in a byte, a scale in F8_E4M3 for 16, and one scale in F32 for all. Pure.

ModelOpt and compressed-tensors store the same blocks under different names, and the scale of all as each other's
reciprocal: ModelOpt multiplies by it, compressed-tensors divides by it.
"""

from __future__ import annotations

from math import prod

from tensorkeep.arrays import Arithmetic
from tensorkeep.quantized._blocks import Box, scaled, scales_at
from tensorkeep.quantized._numbers import E2M1, Floats, numbers
from tensorkeep.quantized._record import Headers, QuantizedTensor, parts_of, wrong
from tensorkeep.quantized._settings import Settings, module_of
from tensorkeep.quantized.families._base import Layout, Take, beside, cut, require_scales, widened

BLOCK = 16


def _compressed(name: str, headers: Headers, settings: Settings) -> QuantizedTensor | None:
    parts = parts_of(
        headers,
        (
            ("data", f"{name}_packed"),
            ("scales", f"{name}_scale"),
            ("scale", f"{name}_global_scale"),
            ("input_scale", beside(name, "input_global_scale")),
        ),
    )
    data, scales = headers[parts["data"]], headers.get(parts.get("scales", ""))
    group = settings.group_of(module_of(name))
    is_named = "nvfp4" in f"{settings.config.format} {group and group.format}"
    if data.dtype != "U8" or not ("scale" in parts or (scales and scales.dtype == "F8_E4M3") or is_named):
        return None
    if f"{name}_scale_2" in headers:
        raise wrong(
            name,
            "has a scale of all and its reciprocal",
            parts,
            kind="reciprocal",
            found="`_global_scale` and `_scale_2`",
        )
    return _checked(name, "nvfp4-pack-quantized", parts, headers)


def _of_modelopt(name: str, headers: Headers, settings: Settings) -> QuantizedTensor | None:
    parts = parts_of(
        headers,
        (
            ("data", name),
            ("scales", f"{name}_scale"),
            ("scale", f"{name}_scale_2"),
            ("input_scale", beside(name, "input_scale")),
        ),
    )
    is_meant = settings.config.method == "modelopt" and "NVFP4" in (settings.config.format or "NVFP4")
    scales = headers.get(parts.get("scales", ""))
    if "scale" not in parts and not (is_meant and scales and scales.dtype == "F8_E4M3"):
        return None
    if f"{name}_global_scale" in headers:
        raise wrong(
            name,
            "has a scale of all and its reciprocal",
            parts,
            kind="reciprocal",
            found="`_scale_2` and `_global_scale`",
        )
    if beside(name, "pre_quant_scale") in headers:
        raise wrong(name, "has inputs that are scaled first, which no weight can hold", parts, kind="unsupported")
    return _checked(name, "modelopt-nvfp4", parts, headers)


def _checked(name: str, layout: str, parts: dict[str, str], headers: Headers) -> QuantizedTensor:
    data = headers[parts["data"]]
    for role, end in (
        ("scales", "_scale"),
        ("scale", "_scale_2" if layout.startswith("modelopt") else "_global_scale"),
    ):
        if role not in parts:
            raise wrong(
                name,
                "has no scales of its blocks" if role == "scales" else "has no scale of the whole",
                parts,
                kind="missing",
                expected=f"`{name}{end}`",
            )
    scales, scale = headers[parts["scales"]], headers[parts["scale"]]
    shape = (*data.shape[:-1], 2 * data.shape[-1]) if data.shape else ()
    grid = (*data.shape[:-1], data.shape[-1] * 2 // BLOCK) if data.shape else ()
    if len(shape) < 2 or shape[-1] % BLOCK or scales.shape != grid or scales.dtype not in {"F8_E4M3", "U8"}:
        raise wrong(
            name, "has scales that do not fit its shape", parts, expected=f"F8_E4M3 {list(grid)}", found=str(scales)
        )
    if prod(scale.shape) not in {1, *shape[:1]} or len(scale.shape) > len(shape):
        raise wrong(name, "has no scale of the whole", parts, expected="one number", found=str(scale))
    require_scales(name, "scale", parts, headers)
    notes = {"scales": scales.shape, "scale": scale.shape}
    return QuantizedTensor(name, layout, shape, 4, "e2m1", (*(1,) * (len(shape) - 1), BLOCK), parts, notes)


def _decode(ops: Arithmetic, tensor: QuantizedTensor, take: Take, box: Box) -> Floats:
    *rows, columns = box
    pairs = widened(columns, BLOCK)
    packed = take(
        "data", (*(slice(axis.start, axis.stop) for axis in rows), slice(pairs.start // 2, pairs.stop // 2))
    )
    wide = (*rows, pairs)
    at = scales_at(wide, tensor.block, tensor.shape, tensor.notes["scales"])
    scales = numbers(ops, take("scales", at), "F8_E4M3")
    of_all = ops.floats(take("scale", ...)).reshape(-1)
    if len(of_all) > 1:
        of_all = of_all[rows[0].start : rows[0].stop]
    of_all = of_all.reshape(-1, *(1,) * len(rows)) if len(of_all) > 1 else of_all.reshape(())
    scales = scales * of_all if tensor.layout == "modelopt-nvfp4" else scales / of_all
    return scaled(ops, ops.pairs(E2M1, packed), scales, wide, tensor.block)[..., cut(columns, pairs)]


NVFP4 = Layout(("nvfp4-pack-quantized",), ("_packed",), _compressed, _decode)
MODELOPT_NVFP4 = Layout(("modelopt-nvfp4",), (), _of_modelopt, _decode, frozenset(("U8",)))

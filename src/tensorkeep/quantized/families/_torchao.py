"""torchao's tensors as `flatten_tensor_state_dict` stores them: parts, and JSON in the metadata. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, prod
from typing import Any, Final

import msgspec

from tensorkeep.arrays import Arithmetic
from tensorkeep.quantized._blocks import Box, block_of, scaled, scales_at, spread
from tensorkeep.quantized._numbers import Floats, numbers
from tensorkeep.quantized._record import Headers, QuantizedTensor, Stored, parts_of, wrong
from tensorkeep.quantized._settings import Settings
from tensorkeep.quantized.families._base import Layout, Take, require_scales, whole

_FORMS: Final = {
    "Float8Tensor": {"F8_E4M3": "e4m3", "F8_E5M2": "e5m2"},
    "Int8Tensor": {"I8": "int"},
    "IntxUnpackedToInt8Tensor": {"I8": "int"},
}
"""Class to the dtypes of its numbers."""

_ROLES: Final = {"data": "qdata", "scales": "scale", "zeros": "zero_point", "input_scale": "act_quant_scale"}
_OTHERS: Final = ("scale_and_zero", "act_pre_scale", "per_tensor_scale", "act_per_tensor_scale")


def _recognize(prefix: str, headers: Headers, settings: Settings) -> QuantizedTensor | None:
    module, _, last = prefix.rpartition(".")
    if not last.startswith("_"):
        return None
    name = f"{module}.{last[1:]}" if module else last[1:]
    said = _said(settings.notes.get(f"metadata {name}"))
    kind = said.get("_type")
    if not isinstance(kind, str):
        return None
    roles = _ROLES | {end: end for end in _OTHERS}
    parts = parts_of(headers, ((role, f"{prefix}_{end}") for role, end in roles.items()))
    data = headers[parts["data"]]
    if kind not in _FORMS or data.dtype not in _FORMS[kind] or any(end in parts for end in _OTHERS):
        raise wrong(
            name, "is in a class of torchao that is not known here", parts, kind="unsupported", found=kind[:100]
        )
    if "scales" not in parts:
        raise wrong(name, "has no scales", parts, kind="missing", expected=f"`{prefix}_scale`")
    require_scales(name, "scales", parts, headers)
    scales = headers[parts["scales"]]
    grid, block = _grid_and_block(name, data, scales, parts, said)
    stored = {role: headers[parts[role]].shape for role in ("scales", "zeros") if role in parts}
    for role, shape in stored.items():
        if prod(shape) not in {1, prod(grid)}:
            raise wrong(
                name, f"does not fit `{parts[role]}`", parts, expected=f"{list(grid)}", found=f"{list(shape)}"
            )
    notes = {"dtype": data.dtype, "grid": grid, "stored": stored}
    form = _FORMS[kind][data.dtype]
    return QuantizedTensor(name, f"torchao-{kind}", data.shape, _bits(said), form, block, parts, notes)


def _grid_and_block(
    name: str, data: Stored, scales: Stored, parts: Mapping[str, str], said: Mapping[str, Any]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return how many blocks there are along each dimension, and their extents: as it says, or from the scales."""
    attributes = said.get("_data")
    extents = attributes.get("block_size") if isinstance(attributes, dict) else None
    if isinstance(extents, list) and len(extents) == len(data.shape) and all(map(whole, extents)):
        block = tuple(extents)
    else:
        block = block_of(name, data.shape, scales, parts)
    return tuple(ceil(extent / of_block) for extent, of_block in zip(data.shape, block, strict=True)), block


def _said(text: Any) -> Mapping[str, Any]:
    try:
        said = msgspec.json.decode(text if isinstance(text, str) else "{}")
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _bits(said: Mapping[str, Any]) -> int:
    """Return the bits of a number, which may be fewer than it is stored in."""
    attributes = said.get("_data")
    target = attributes.get("target_dtype") if isinstance(attributes, dict) else None
    text = target.get("_data") if isinstance(target, dict) else None
    digits = text.removeprefix("int") if isinstance(text, str) else ""
    return int(digits) if digits in set("12345678") else 8


def _decode(ops: Arithmetic, tensor: QuantizedTensor, take: Take, box: Box) -> Floats:
    stored = take("data", tuple(slice(axis.start, axis.stop) for axis in box))
    values = numbers(ops, stored, tensor.notes["dtype"])
    if "zeros" in tensor.parts:
        values -= spread(ops, _of_blocks(ops, tensor, take, box, "zeros"), box, tensor.block)
    return scaled(ops, values, _of_blocks(ops, tensor, take, box, "scales"), box, tensor.block)


def _of_blocks(ops: Arithmetic, tensor: QuantizedTensor, take: Take, box: Box, role: str) -> Floats:
    """Return the scales or zero points that a part needs; torchao keeps them in any shape."""
    stored, grid = tensor.notes["stored"][role], tensor.notes["grid"]
    if stored == grid or prod(stored) == 1:
        return ops.floats(take(role, scales_at(box, tensor.block, tensor.shape, stored)))
    return ops.floats(take(role, ...)).reshape(grid)[scales_at(box, tensor.block, tensor.shape, grid)]


TORCHAO = Layout(tuple(f"torchao-{kind}" for kind in _FORMS), ("_qdata",), _recognize, _decode)

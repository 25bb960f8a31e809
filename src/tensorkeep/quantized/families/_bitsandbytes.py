"""bitsandbytes' four bits, NF4 and FP4: pairs of places in a table, and a magnitude for each run of numbers. Pure.

The magnitudes may themselves be places in a table of 256, with magnitudes and a mean of their own. What headers do
not say, such as the shape, is JSON in a small tensor, the quant state.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, isfinite, prod
from typing import Any, Final

import numpy as np

from tensorkeep.arrays import Arithmetic
from tensorkeep.quantized._blocks import Box
from tensorkeep.quantized._numbers import Floats
from tensorkeep.quantized._record import Headers, QuantizedTensor, parts_of, wrong
from tensorkeep.quantized._settings import Settings
from tensorkeep.quantized.families._base import Layout, Take, cut, whole, widened

_TABLES: Final = {
    "nf4": np.array(
        [
            *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
            *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
            *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
            *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
        ],
        np.float32,
    ),
    "fp4": np.array([0, 0.0625, 8, 12, 4, 6, 2, 3, -0.0, -0.0625, -8, -12, -4, -6, -2, -3], np.float32)
    / np.float32(12),
}
_MAX_BLOCK: Final = 2**16
"""Numbers that may share a magnitude; bitsandbytes makes blocks of up to 4,096."""

_ENDINGS: Final = tuple(f".quant_state.bitsandbytes__{form}" for form in _TABLES)
_ROLES: Final = {
    "magnitudes": ".absmax",
    "table": ".quant_map",
    "outer": ".nested_absmax",
    "outer_table": ".nested_quant_map",
}


def _recognize(name: str, headers: Headers, settings: Settings) -> QuantizedTensor | None:
    form = next(form for form, ending in zip(_TABLES, _ENDINGS, strict=True) if name + ending in headers)
    state_name = f"{name}.quant_state.bitsandbytes__{form}"
    parts = {"data": name, "state": state_name}
    if name not in headers:
        raise wrong(name, "has no numbers", {"state": state_name}, kind="missing", expected=f"`{name}`")
    parts |= parts_of(headers, ((role, f"{name}{end}") for role, end in _ROLES.items()))
    state = settings.notes.get(state_name)
    if not isinstance(state, dict):
        raise wrong(name, "has a quant state that is not JSON", parts, found=f"`{state_name}`")
    block, outer_block = whole(state.get("blocksize")), whole(state.get("nested_blocksize"))
    shape = _shape(state)
    data, magnitudes = headers[name], headers.get(parts.get("magnitudes", ""))
    n = prod(shape)
    if not shape or not block or -(-n // 2) != prod(data.shape) * data.itemsize:
        raise wrong(
            name, "has another size than its quant state says", parts, expected=f"{list(shape)}", found=str(data)
        )
    if magnitudes is None:
        raise wrong(name, "has no scales", parts, kind="missing", expected=f"`{name}.absmax`")
    _check_blocks(name, parts, block, outer_block)
    is_nested = "outer" in parts
    expected = {"magnitudes": ("U8" if is_nested else "F32", (ceil(n / block),))}
    if is_nested:
        if not outer_block or "outer_table" not in parts or not _offset_of(state):
            raise wrong(
                name, "has nested scales that are incomplete", parts, kind="missing", expected=f"`{name}.nested_…`"
            )
        expected |= {
            "outer": ("F32", (ceil(ceil(n / block) / outer_block),)),
            "outer_table": ("F32", (256,)),
        }
    for role, (dtype, extents) in expected.items():
        one = headers[parts[role]]
        if (one.dtype, one.shape) != (dtype, extents):
            raise wrong(
                name, f"does not fit `{parts[role]}`", parts, expected=f"{dtype} {list(extents)}", found=str(one)
            )
    notes = {
        "block": block,
        "outer_block": outer_block,
        "offset": float(state["nested_offset"]) if is_nested else 0.0,
        "itemsize": data.itemsize,
        "ndim": len(data.shape),
        "columns": data.shape[-1],
        "size": prod(data.shape),
    }
    of_block = (*(1,) * (len(shape) - 1), min(block, shape[-1]))
    if prod(data.shape) != max(data.shape):
        raise wrong(name, "has numbers in several columns", parts, expected="one column", found=str(data))
    return QuantizedTensor(name, "bitsandbytes-4bit", shape, 4, form, of_block, parts, notes)


def _check_blocks(name: str, parts: Mapping[str, str], *sizes: int | None) -> None:
    """Refuse large blocks: to compute one number, all of its block are computed."""
    largest = max(size or 0 for size in sizes)
    if largest > _MAX_BLOCK:
        raise wrong(
            name, "has blocks of no possible size", parts, expected=f"at most {_MAX_BLOCK:,}", found=f"{largest:,}"
        )


def _shape(state: Mapping[str, Any]) -> tuple[int, ...]:
    shape = state.get("shape")
    is_one = isinstance(shape, list) and 0 < len(shape) <= 8 and all(whole(extent) for extent in shape)
    return tuple(shape) if is_one and isinstance(shape, list) else ()


def _offset_of(state: Mapping[str, Any]) -> bool:
    offset = state.get("nested_offset")
    return isinstance(offset, int | float) and isfinite(offset)


def _decode(ops: Arithmetic, tensor: QuantizedTensor, take: Take, box: Box) -> Floats:
    """Compute the run of numbers that holds a part, and cut the part out of it."""
    shape, block = tensor.shape, int(tensor.notes["block"])
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    first = sum(axis.start * stride for axis, stride in zip(box, strides, strict=True))
    last = sum((axis.stop - 1) * stride for axis, stride in zip(box, strides, strict=True))
    # Along dimensions before this one, the part has one position: all of it is within one run of rows
    cut_axis = next((number for number, axis in enumerate(box) if len(axis) > 1), len(box) - 1)
    row = strides[cut_axis]
    rows = widened(range(first, last + 1), row)
    run = widened(rows, block)
    run = range(run.start, min(run.stop, prod(shape)))
    values = _values(ops, tensor, take, run)
    blocks = range(run.start // block, ceil(run.stop / block))
    values *= ops.repeat(_magnitudes(ops, tensor, take, blocks), block)[: len(run)]
    within = values[cut(rows, run)].reshape(-1, *shape[cut_axis + 1 :])
    start = (first - rows.start) // row
    inner = (slice(axis.start, axis.stop) for axis in box[cut_axis + 1 :])
    return within[(slice(start, start + len(box[cut_axis])), *inner)].reshape(*map(len, box))


def _values(ops: Arithmetic, tensor: QuantizedTensor, take: Take, run: range) -> Floats:
    size = 2 * int(tensor.notes["itemsize"])
    words = widened(run, size)
    at = slice(words.start // size, words.stop // size)
    index: tuple[Any, ...] = (0,) * (int(tensor.notes["ndim"]) - 1)
    stored = take("data", (*index, at) if tensor.notes["columns"] > 1 else (at, *index))
    return ops.pairs(_TABLES[tensor.form], ops.view(stored, "uint8").reshape(-1), is_high_first=True)[cut(run, words)]


def _magnitudes(ops: Arithmetic, tensor: QuantizedTensor, take: Take, blocks: range) -> Floats:
    stored = take("magnitudes", slice(blocks.start, blocks.stop))
    if "outer" not in tensor.parts:
        return ops.floats(stored)
    size = int(tensor.notes["outer_block"])
    runs = widened(blocks, size)
    outer = take("outer", slice(runs.start // size, runs.stop // size))
    inner = ops.take(take("outer_table", ...), ops.integers(stored), 0)
    inner *= ops.repeat(outer, size)[cut(blocks, runs)]
    return inner + float(np.float32(tensor.notes["offset"]))


BITSANDBYTES = Layout(("bitsandbytes-4bit",), _ENDINGS, _recognize, _decode)

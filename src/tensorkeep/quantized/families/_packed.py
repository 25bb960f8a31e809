"""compressed-tensors' integers of 1 to 8 bits in 32-bit words along rows, `pack-quantized`. Pure."""

from __future__ import annotations

from math import ceil, prod
from typing import Any

from tensorkeep.arrays import Arithmetic
from tensorkeep.errors import FormatError
from tensorkeep.quantized._blocks import Box, block_of, scaled, scales_at, spread
from tensorkeep.quantized._numbers import Array, Floats, unpacked
from tensorkeep.quantized._record import Headers, QuantizedTensor, parts_of, wrong
from tensorkeep.quantized._settings import Settings, module_of
from tensorkeep.quantized.families._base import (
    POSITIONS,
    Layout,
    Take,
    beside,
    cut,
    require_integers,
    require_scales,
    whole,
    widened,
)

_ROLES = {
    "data": "_packed",
    "scales": "_scale",
    "zeros": "_zero_point",
    "shape": "_shape",
    "order": "_g_idx",
}


def _recognize(name: str, headers: Headers, settings: Settings) -> QuantizedTensor | None:
    ends = ((role, f"{name}{end}") for role, end in _ROLES.items())
    parts = parts_of(headers, (*ends, ("input_scale", beside(name, "input_scale"))))
    data = headers[parts["data"]]
    if data.dtype != "I32":
        return None
    module = module_of(name)
    group = settings.group_of(module)
    if f"{module}.scale_packed" in headers or "marlin-24" in {settings.config.format, group and group.format}:
        raise wrong(name, "is in the order of Marlin 2:4, which is not known here", parts, kind="unsupported")
    if "scales" not in parts:
        if settings.config.method is None and not name.endswith("weight"):
            return None
        raise wrong(name, "has no scales", parts, kind="missing", expected=f"`{name}_scale`")
    scales, zeros = headers[parts["scales"]], headers.get(parts.get("zeros", ""))
    said = _said_shape(settings.notes.get(parts.get("shape", "")))
    size = group.group_size if group else None
    n_in = said[-1] if said else scales.shape[-1] * size if size and scales.shape else 0
    bits = whole(group.bits) if group else None
    bits = bits or (data.shape[-1] * 32 // n_in if data.shape and n_in else 0)
    n_in = n_in or (data.shape[-1] * 32 // bits if bits and data.shape else 0)
    shape = (*data.shape[:-1], n_in)
    if not 1 <= bits <= 8 or len(data.shape) < 2 or data.shape[-1] != ceil(n_in * bits / 32) or not prod(shape):
        raise wrong(
            name, "has no possible shape", parts, expected=f"{n_in:,} columns of {bits} bits", found=str(data)
        )
    if said and said != shape:
        raise wrong(name, "has another shape than it says", parts, expected=f"{list(said)}", found=str(data))
    block = block_of(name, shape, scales, parts, declared=(1, size) if size else None)
    is_packed = zeros is not None and zeros.dtype == "I32"
    if zeros is not None:
        rows = ceil(shape[-2] * bits / 32) if is_packed else scales.shape[-2] if len(scales.shape) > 1 else 0
        expected = (*scales.shape[:-2], rows, scales.shape[-1]) if rows else scales.shape
        if zeros.shape != expected or (is_packed and len(scales.shape) != len(shape)):
            raise wrong(
                name, "has zero points that do not fit its scales", parts, expected=f"{expected}", found=str(zeros)
            )
    require_integers(name, "order", parts, headers, POSITIONS)
    require_scales(name, "scales", parts, headers)
    if "order" in parts and (headers[parts["order"]].shape != (n_in,) or len(shape) != 2 or block[0] != 1):
        raise wrong(
            name, "does not fit its order of columns", parts, expected=f"[{n_in}]", found=str(headers[parts["order"]])
        )
    return QuantizedTensor(
        name, "pack-quantized", shape, bits, "int", block, parts, {"scales": scales.shape, "is_packed": is_packed}
    )


def _said_shape(value: Any) -> tuple[int, ...] | None:
    return tuple(value) if isinstance(value, list) and len(value) > 1 and all(one > 0 for one in value) else None


def _decode(ops: Arithmetic, tensor: QuantizedTensor, take: Take, box: Box) -> Floats:
    *rows, columns = box
    of_words = widened(columns, 32)
    words = take(
        "data", (*_slices(rows), slice(of_words.start * tensor.bits // 32, of_words.stop * tensor.bits // 32))
    )
    values = ops.floats(_unpacked(ops, words, tensor.bits, len(of_words))[..., cut(columns, of_words)])
    if "order" in tensor.parts:
        return _in_order(ops, tensor, take, box, values)
    at = scales_at(box, tensor.block, tensor.shape, tensor.notes["scales"])
    zeros = _zeros(ops, tensor, take, at)
    values -= zeros if isinstance(zeros, int) else spread(ops, zeros, box, tensor.block)
    return scaled(ops, values, ops.floats(take("scales", at)), box, tensor.block)


def _in_order(ops: Arithmetic, tensor: QuantizedTensor, take: Take, box: Box, values: Floats) -> Floats:
    """Scale columns that say which group they are in."""
    rows, columns = box
    groups = ops.integers(take("order", slice(columns.start, columns.stop)))
    n_groups = ceil(tensor.shape[1] / tensor.block[1])
    if len(groups) and not 0 <= int(groups.min()) <= int(groups.max()) < n_groups:
        raise FormatError(
            f"tensor `{tensor.name}` has columns in groups that do not exist",
            tensor=tensor.name,
            expected=f"0 to {n_groups - 1} in `{tensor.parts['order']}`",
            found=f"{int(groups.min())} to {int(groups.max())}",
        )
    at = (slice(rows.start, rows.stop), slice(None))
    zeros, scales = _zeros(ops, tensor, take, at), ops.floats(take("scales", at))
    values -= zeros if isinstance(zeros, int) or prod(zeros.shape) == 1 else ops.take(zeros, groups, 1)
    return values * ops.take(scales, groups, 1)


def _zeros(ops: Arithmetic, tensor: QuantizedTensor, take: Take, at: tuple[slice, ...]) -> Floats | int:
    """Return the zero points of some scales, or of all, as unsigned numbers: what is packed is not negative."""
    middle = 1 << (tensor.bits - 1)
    if "zeros" not in tensor.parts:
        return middle
    if not tensor.notes["is_packed"]:
        return ops.floats(take("zeros", at)) + middle
    start, stop, _ = at[-2].indices(tensor.shape[-2])
    of_words = widened(range(start, stop), 32)
    words = take("zeros", (*at[:-2], _word_rows(of_words, tensor.bits), at[-1]))
    values = _unpacked(ops, words.swapaxes(-2, -1), tensor.bits, len(of_words)).swapaxes(-1, -2)
    return ops.floats(values[..., cut(range(start, stop), of_words), :])


def _word_rows(of_words: range, bits: int) -> slice:
    return slice(of_words.start * bits // 32, of_words.stop * bits // 32)


def _unpacked(ops: Arithmetic, words: Array, bits: int, n: int) -> Array:
    """Unpack words, adding those that the last run of 32 numbers lacks."""
    lacking = n * bits // 32 - words.shape[-1]
    return unpacked(ops, ops.pad(words, lacking) if lacking > 0 else words, bits)


def _slices(places: list[range]) -> tuple[slice, ...]:
    return tuple(slice(one.start, one.stop) for one in places)


PACKED = Layout(("pack-quantized",), ("_packed",), _recognize, _decode)

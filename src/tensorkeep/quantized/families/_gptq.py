"""GPTQ: columns of numbers in 32-bit words, as AutoGPTQ and GPTQModel write them. Pure.

Rows of `qweight` hold the numbers of a column of the weight, 32 of them in as many words as a number has bits, lowest
first. `g_idx` says which group each column is in; without it, groups are next to each other. Zero points are stored
minus one, except in the second version of the format.
"""

from __future__ import annotations

from math import ceil

from tensorkeep.arrays import Arithmetic
from tensorkeep.errors import FormatError
from tensorkeep.quantized._blocks import Box
from tensorkeep.quantized._numbers import Array, Floats, unpacked
from tensorkeep.quantized._record import Headers, QuantizedTensor, parts_of, wrong
from tensorkeep.quantized._settings import Settings
from tensorkeep.quantized.families._base import (
    POSITIONS,
    WORDS,
    Layout,
    Take,
    cut,
    require_integers,
    require_scales,
    whole,
    widened,
)

_BITS = (2, 3, 4, 8)


def _recognize(module: str, headers: Headers, settings: Settings) -> QuantizedTensor | None:
    roles = {"data": "qweight", "scales": "scales", "zeros": "qzeros", "order": "g_idx"}
    parts = parts_of(headers, ((role, f"{module}.{end}") for role, end in roles.items()))
    name, config = f"{module}.weight", settings.config
    data, scales = headers[parts["data"]], headers.get(parts.get("scales", ""))
    if scales is None:
        raise wrong(name, "has no scales", parts, kind="missing", expected=f"`{module}.scales`")
    if len(data.shape) == len(scales.shape) == 2 and data.shape[1] * 8 == scales.shape[1] and "order" not in parts:
        return None  # AWQ
    if config.format == "marlin":
        raise wrong(name, "is in Marlin's order, which is not known here", parts, kind="unsupported")
    if data.dtype not in {"I32", "U32"} or len(data.shape) != 2 or len(scales.shape) != 2:
        raise wrong(
            name, "is not in GPTQ's words", parts, expected="words of 32 bits in two dimensions", found=str(data)
        )
    (n_words, n_out), n_groups = data.shape, scales.shape[0]
    bits = whole(config.bits) or _bits_of(n_words, parts, headers, n_out)
    n_in = n_words * 32 // bits if bits else 0
    if bits not in _BITS or n_words * 32 != n_in * bits or not n_in or not n_groups:
        raise wrong(name, "has no possible number of bits", parts, expected="2, 3, 4 or 8", found=f"{bits} in {data}")
    group = _group_of(n_in, n_groups, whole(config.group_size))
    is_certain = n_groups == 1 or (n_in % n_groups == 0 and group.bit_count() == 1)
    if "order" not in parts and group != config.group_size and not is_certain:
        raise wrong(
            name,
            "does not say how many columns are in a group",
            parts,
            kind="missing",
            expected=f"`{module}.g_idx`, or a `group_size` that makes {n_groups} groups of {n_in} columns",
            found=str(config.group_size),
        )
    expected = {"scales": (n_groups, n_out), "zeros": (n_groups, ceil(n_out * bits / 32)), "order": (n_in,)}
    misfit = next(
        (role for role, shape in expected.items() if role in parts and headers[parts[role]].shape != shape), None
    )
    if misfit is not None or ceil(n_in / group) != n_groups or ("zeros" in parts and n_out * bits % 32):
        part = parts[misfit or "scales"]
        raise wrong(
            name,
            f"does not fit `{part}`",
            parts,
            expected=f"{list(expected[misfit or 'scales'])}",
            found=str(headers[part]),
        )
    require_integers(name, "order", parts, headers, POSITIONS)
    require_integers(name, "zeros", parts, headers, WORDS)
    require_scales(name, "scales", parts, headers)
    notes = {"is_second": config.format == "gptq_v2"}
    return QuantizedTensor(name, "gptq", (n_out, n_in), bits, "int", (1, group), parts, notes)


def _group_of(n_in: int, n_groups: int, declared: int | None) -> int:
    """Return how many columns are in a group; the last one may have fewer."""
    fits = declared is not None and ceil(n_in / declared) == n_groups
    return min(declared, n_in) if fits and declared else ceil(n_in / n_groups)


def _bits_of(n_words: int, parts: dict[str, str], headers: Headers, n_out: int) -> int:
    """Return how many bits a number has, from the length of `g_idx` or the zero points."""
    if "order" in parts and len(headers[parts["order"]].shape) == 1:
        n_in = headers[parts["order"]].shape[0]
        return n_words * 32 // n_in if n_in else 0
    if "zeros" in parts and len(headers[parts["zeros"]].shape) == 2 and n_out:
        return headers[parts["zeros"]].shape[1] * 32 // n_out
    return 4


def _decode(ops: Arithmetic, tensor: QuantizedTensor, take: Take, box: Box) -> Floats:
    rows, columns = box
    of_words = widened(columns, 32)
    words = take("data", (_words(of_words, tensor.bits), slice(rows.start, rows.stop)))
    values = ops.shorts(unpacked(ops, words.T, tensor.bits)[:, cut(columns, of_words)])
    groups = _groups(ops, tensor, take, columns)
    scales = ops.floats(take("scales", (slice(None), slice(rows.start, rows.stop))))
    if "zeros" in tensor.parts:
        values -= ops.take(_zeros(ops, tensor, take, rows).T, groups, 1)
    else:
        values -= 1 << (tensor.bits - 1)
    return ops.floats(values) * ops.take(scales.T, groups, 1)


def _words(numbers_of: range, bits: int) -> slice:
    """Return the words that hold whole runs of 32 numbers."""
    return slice(numbers_of.start * bits // 32, numbers_of.stop * bits // 32)


def _groups(ops: Arithmetic, tensor: QuantizedTensor, take: Take, columns: range) -> Array:
    """Return the group of each column."""
    if "order" not in tensor.parts:
        return ops.positions(columns) // tensor.block[1]
    groups = ops.integers(take("order", slice(columns.start, columns.stop)))
    n_groups = ceil(tensor.shape[1] / tensor.block[1])
    if len(groups) and not 0 <= int(groups.min()) <= int(groups.max()) < n_groups:
        raise FormatError(
            f"tensor `{tensor.name}` has columns in groups that do not exist",
            tensor=tensor.name,
            expected=f"0 to {n_groups - 1} in `{tensor.parts['order']}`",
            found=f"{int(groups.min())} to {int(groups.max())}",
        )
    return groups


def _zeros(ops: Arithmetic, tensor: QuantizedTensor, take: Take, rows: range) -> Array:
    """Return the zero point of each group and row."""
    of_words = widened(rows, 32)
    zeros = ops.shorts(unpacked(ops, take("zeros", (slice(None), _words(of_words, tensor.bits))), tensor.bits))
    if not tensor.notes["is_second"]:
        zeros += 1
        if tensor.bits != 3:  # AutoGPTQ lets 8 of three bits be 8, and other zero points wrap
            zeros &= (1 << tensor.bits) - 1
    return zeros[:, cut(rows, of_words)]


GPTQ = Layout(("gptq",), (".qweight",), _recognize, _decode)

"""AWQ in the order of its GEMM kernels: rows of numbers in 32-bit words, eight in each, interleaved. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np

from tensorkeep.arrays import Arithmetic
from tensorkeep.quantized._blocks import Box
from tensorkeep.quantized._numbers import Array, Floats, unpacked
from tensorkeep.quantized._record import Headers, QuantizedTensor, parts_of, wrong
from tensorkeep.quantized._settings import Settings
from tensorkeep.quantized.families._base import WORDS, Layout, Take, cut, require_integers, require_scales, widened

_PLACES: Final = np.array([0, 4, 1, 5, 2, 6, 3, 7])
"""Where each of eight numbers is in its word."""


def _recognize(module: str, headers: Headers, settings: Settings) -> QuantizedTensor | None:
    roles = {"data": "qweight", "scales": "scales", "zeros": "qzeros"}
    parts = parts_of(headers, ((role, f"{module}.{end}") for role, end in roles.items()))
    name = f"{module}.weight"
    data = headers[parts["data"]]
    version = settings.config.version
    if version is not None and version.lower() != "gemm":
        raise wrong(
            name,
            "is in an order of AWQ that is not known here",
            parts,
            kind="unsupported",
            expected="gemm",
            found=version,
        )
    if "zeros" not in parts:
        raise wrong(name, "has no zero points", parts, kind="missing", expected=f"`{module}.qzeros`")
    scales, zeros = headers[parts["scales"]], headers[parts["zeros"]]
    if settings.config.bits not in {None, 4}:
        raise wrong(name, "has no possible number of bits", parts, expected="4", found=str(settings.config.bits))
    n_in, n_out, n_groups = data.shape[0], data.shape[1] * 8, scales.shape[0]
    if data.dtype not in {"I32", "U32"} or zeros.shape != (n_groups, data.shape[1]):
        raise wrong(
            name, "does not fit its zero points", parts, expected=f"I32 {[n_groups, data.shape[1]]}", found=str(zeros)
        )
    require_integers(name, "zeros", parts, headers, WORDS)
    require_scales(name, "scales", parts, headers)
    if not n_groups or n_in % n_groups:
        raise wrong(name, "does not fit its scales", parts, expected=f"groups of {n_in} columns", found=str(scales))
    return QuantizedTensor(name, "awq", (n_out, n_in), 4, "int", (1, n_in // n_groups), parts)


def _decode(ops: Arithmetic, tensor: QuantizedTensor, take: Take, box: Box) -> Floats:
    rows, columns = box
    group = tensor.block[1]
    groups = range(columns.start // group, -(-columns.stop // group))
    words = widened(rows, 8)
    of_words = slice(words.start // 8, words.stop // 8)
    own = cut(rows, words)
    values = _in_order(ops, take("data", (slice(columns.start, columns.stop), of_words)))[:, own]
    zeros = _in_order(ops, take("zeros", (slice(groups.start, groups.stop), of_words)))[:, own]
    scales = take("scales", (slice(groups.start, groups.stop), slice(rows.start, rows.stop)))
    of_columns = ops.positions(columns) // group - groups.start
    differences = ops.floats(values - ops.take(zeros, of_columns, 0))
    differences *= ops.take(ops.floats(scales), of_columns, 0)
    return differences.T


def _in_order(ops: Arithmetic, words: Array) -> Array:
    values = unpacked(ops, words, 4).reshape(*words.shape, 8)
    return ops.shorts(ops.take(values, ops.constant(_PLACES), -1).reshape(words.shape[0], -1))


AWQ = Layout(("awq",), (".qweight",), _recognize, _decode)

"""Blocks with one scale, and perhaps a minimum: Q1_0 to Q8_K, and the ternary TQ1_0 and TQ2_0."""

from __future__ import annotations

from typing import Final

import numpy as np

from tensorkeep.arrays import Arithmetic
from tensorkeep.tensors.quantized._layouts import Array, Blocks, Floats, fields, scale, signed

_THIRDS: Final = np.array([1, 3, 9, 27, 81], np.uint8)[:, None]
"""A byte of TQ1_0 is a fraction of 256 with five ternary digits: times 3, the next digit is what exceeds 256."""


def q1_0(ops: Arithmetic, blocks: Blocks) -> Floats:
    d = scale(ops, blocks)
    return ops.where(ops.apart(blocks["qs"], 1), d, -d)


def q2_0(ops: Arithmetic, blocks: Blocks) -> Floats:
    return signed(ops, fields(ops, blocks["qs"], 2, 1), 1) * scale(ops, blocks)


def q4_0(ops: Arithmetic, blocks: Blocks) -> Floats:
    return scale(ops, blocks) * signed(ops, fields(ops, blocks["qs"], 4, 16), 8)


def q4_1(ops: Arithmetic, blocks: Blocks) -> Floats:
    return scale(ops, blocks) * ops.floats(fields(ops, blocks["qs"], 4, 16)) + scale(ops, blocks, "m")


def q5_0(ops: Arithmetic, blocks: Blocks) -> Floats:
    return scale(ops, blocks) * signed(ops, _five_bits(ops, blocks), 16)


def q5_1(ops: Arithmetic, blocks: Blocks) -> Floats:
    return scale(ops, blocks) * ops.floats(_five_bits(ops, blocks)) + scale(ops, blocks, "m")


def _five_bits(ops: Arithmetic, blocks: Blocks) -> Array:
    return fields(ops, blocks["qs"], 4, 16) | ops.apart(blocks["qh"], 1) << 4


def q8(ops: Arithmetic, blocks: Blocks) -> Floats:
    return ops.floats(blocks["qs"]) * scale(ops, blocks)


def tq1_0(ops: Arithmetic, blocks: Blocks) -> Floats:
    n, thirds = len(blocks["qs"]), ops.constant(_THIRDS)
    parts = (blocks["qs"][:, None, :32], blocks["qs"][:, None, 32:], blocks["qh"][:, None])
    counts = (5, 5, 4)
    shifted = [(part * thirds[:count]).reshape(n, -1) for part, count in zip(parts, counts, strict=True)]
    digits = ops.shorts(ops.join(shifted)) * 3 >> 8
    return scale(ops, blocks) * ops.floats(digits - 1)


def tq2_0(ops: Arithmetic, blocks: Blocks) -> Floats:
    return scale(ops, blocks) * signed(ops, fields(ops, blocks["qs"], 2, 32), 1)

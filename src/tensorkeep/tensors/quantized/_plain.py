"""Blocks with one scale, and perhaps a minimum: Q1_0 to Q8_K, and the ternary TQ1_0 and TQ2_0."""

from __future__ import annotations

from typing import Final

import numpy as np

from tensorkeep.tensors.quantized._layouts import Array, Floats, bits_of, fields, scale, signed

_THIRDS: Final = np.array([1, 3, 9, 27, 81], np.uint8)[:, None]
"""A byte of TQ1_0 is a fraction of 256 with five ternary digits: times 3, the next digit is what exceeds 256."""


def q1_0(blocks: Array) -> Floats:
    d = scale(blocks)
    return np.where(bits_of(blocks["qs"]), d, -d)


def q2_0(blocks: Array) -> Floats:
    return signed(fields(blocks["qs"], 2, 1), 1) * scale(blocks)


def q4_0(blocks: Array) -> Floats:
    return scale(blocks) * signed(fields(blocks["qs"], 4, 16), 8)


def q4_1(blocks: Array) -> Floats:
    return scale(blocks) * fields(blocks["qs"], 4, 16).astype(np.float32) + scale(blocks, "m")


def q5_0(blocks: Array) -> Floats:
    return scale(blocks) * signed(_five_bits(blocks), 16)


def q5_1(blocks: Array) -> Floats:
    return scale(blocks) * _five_bits(blocks).astype(np.float32) + scale(blocks, "m")


def _five_bits(blocks: Array) -> Array:
    return np.asarray(fields(blocks["qs"], 4, 16) | bits_of(blocks["qh"]) << np.uint8(4))


def q8(blocks: Array) -> Floats:
    return blocks["qs"].astype(np.float32) * scale(blocks)


def tq1_0(blocks: Array) -> Floats:
    n = len(blocks)
    parts = (blocks["qs"][:, None, :32], blocks["qs"][:, None, 32:], blocks["qh"][:, None])
    counts = (5, 5, 4)
    shifted = [(part * _THIRDS[:count]).reshape(n, -1) for part, count in zip(parts, counts, strict=True)]
    digits = np.concatenate(shifted, axis=-1).astype(np.uint16) * np.uint16(3) >> np.uint16(8)
    return scale(blocks) * signed(digits.astype(np.uint8), 1)


def tq2_0(blocks: Array) -> Floats:
    return scale(blocks) * signed(fields(blocks["qs"], 2, 32), 1)

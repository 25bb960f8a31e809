"""K-quants: blocks of 256 elements in sub-blocks of 16 or 32, each with a small scale of its own."""

from __future__ import annotations

from tensorkeep.arrays import Arithmetic
from tensorkeep.tensors.quantized._layouts import Array, Blocks, Floats, fields, scale, signed

_LENGTH = 256


def q2_k(ops: Arithmetic, blocks: Blocks) -> Floats:
    scales = blocks["scales"]
    d = scale(ops, blocks) * ops.floats(scales & 15)
    least = scale(ops, blocks, "dmin") * ops.floats(scales >> 4)
    numbers = ops.floats(fields(ops, blocks["qs"], 2, 32)).reshape(-1, 16, 16)
    return (d[..., None] * numbers - least[..., None]).reshape(-1, _LENGTH)


def q3_k(ops: Arithmetic, blocks: Blocks) -> Floats:
    scales = fields(ops, blocks["scales"][:, :8], 4, 8) | fields(ops, blocks["scales"][:, 8:], 2, 4) << 4
    d = scale(ops, blocks) * signed(ops, scales, 32)
    high = fields(ops, blocks["hmask"], 1, 32) ^ 1  # a bit that is set means that nothing is subtracted
    numbers = ops.view(fields(ops, blocks["qs"], 2, 32), "int8") - ops.view(high << 2, "int8")
    return (d[..., None] * ops.floats(numbers).reshape(-1, 16, 16)).reshape(-1, _LENGTH)


def q4_k(ops: Arithmetic, blocks: Blocks) -> Floats:
    return _with_minima(ops, blocks, fields(ops, blocks["qs"], 4, 32))


def q5_k(ops: Arithmetic, blocks: Blocks) -> Floats:
    return _with_minima(ops, blocks, fields(ops, blocks["qs"], 4, 32) | fields(ops, blocks["qh"], 1, 32) << 4)


def _with_minima(ops: Arithmetic, blocks: Blocks, numbers: Array) -> Floats:
    """Multiply sub-blocks of 32 by their scales and subtract their minima, both of six bits in 12 bytes.

    The first four of each are the low bits of bytes 0 to 3 and 4 to 7. The others have their low bits in bytes 8 to
    11, and their high ones above those first four.
    """
    first, second, low = (blocks["scales"][:, start : start + 4] for start in (0, 4, 8))
    scales = ops.join([first & 63, (low & 15) | (first >> 2 & 48)])
    minima = ops.join([second & 63, (low >> 4) | (second >> 2 & 48)])
    d = scale(ops, blocks) * ops.floats(scales)
    least = scale(ops, blocks, "dmin") * ops.floats(minima)
    return (d[..., None] * ops.floats(numbers).reshape(-1, 8, 32) - least[..., None]).reshape(-1, _LENGTH)


def q6_k(ops: Arithmetic, blocks: Blocks) -> Floats:
    d = scale(ops, blocks) * ops.floats(blocks["scales"])
    numbers = signed(ops, fields(ops, blocks["ql"], 4, 64) | fields(ops, blocks["qh"], 2, 32) << 4, 32)
    return (d[..., None] * numbers.reshape(-1, 16, 16)).reshape(-1, _LENGTH)

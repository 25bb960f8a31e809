"""K-quants: blocks of 256 elements in sub-blocks of 16 or 32, each with a small scale of its own."""

from __future__ import annotations

import numpy as np

from tensorkeep.tensors.quantized._layouts import Array, Floats, fields, scale, signed

_LENGTH = 256


def q2_k(blocks: Array) -> Floats:
    scales = blocks["scales"]
    d = scale(blocks) * (scales & np.uint8(15)).astype(np.float32)
    least = scale(blocks, "dmin") * (scales >> np.uint8(4)).astype(np.float32)
    numbers = fields(blocks["qs"], 2, 32).astype(np.float32).reshape(-1, 16, 16)
    return (d[..., None] * numbers - least[..., None]).reshape(-1, _LENGTH)


def q3_k(blocks: Array) -> Floats:
    scales = fields(blocks["scales"][:, :8], 4, 8) | fields(blocks["scales"][:, 8:], 2, 4) << np.uint8(4)
    d = scale(blocks) * signed(scales, 32)
    high = fields(blocks["hmask"], 1, 32) ^ np.uint8(1)  # a bit that is set means that nothing is subtracted
    numbers = fields(blocks["qs"], 2, 32).view(np.int8) - (high << np.uint8(2)).view(np.int8)
    return (d[..., None] * numbers.astype(np.float32).reshape(-1, 16, 16)).reshape(-1, _LENGTH)


def q4_k(blocks: Array) -> Floats:
    return _with_minima(blocks, fields(blocks["qs"], 4, 32))


def q5_k(blocks: Array) -> Floats:
    return _with_minima(blocks, fields(blocks["qs"], 4, 32) | fields(blocks["qh"], 1, 32) << np.uint8(4))


def _with_minima(blocks: Array, numbers: Array) -> Floats:
    """Multiply sub-blocks of 32 by their scales and subtract their minima, both of six bits in 12 bytes.

    The first four of each are the low bits of bytes 0 to 3 and 4 to 7. The others have their low bits in bytes 8 to
    11, and their high ones above those first four.
    """
    first, second, low = (blocks["scales"][:, start : start + 4] for start in (0, 4, 8))
    six, four, two = np.uint8(63), np.uint8(15), np.uint8(48)
    scales = np.concatenate([first & six, (low & four) | (first >> np.uint8(2) & two)], axis=-1)
    minima = np.concatenate([second & six, (low >> np.uint8(4)) | (second >> np.uint8(2) & two)], axis=-1)
    d = scale(blocks) * scales.astype(np.float32)
    least = scale(blocks, "dmin") * minima.astype(np.float32)
    return (d[..., None] * numbers.astype(np.float32).reshape(-1, 8, 32) - least[..., None]).reshape(-1, _LENGTH)


def q6_k(blocks: Array) -> Floats:
    d = scale(blocks) * blocks["scales"].astype(np.float32)
    numbers = signed(fields(blocks["ql"], 4, 64) | fields(blocks["qh"], 2, 32) << np.uint8(4), 32)
    return (d[..., None] * numbers.reshape(-1, 16, 16)).reshape(-1, _LENGTH)

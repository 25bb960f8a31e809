"""Blocks whose numbers are places in a table of 16: MXFP4, NVFP4, IQ4_NL and IQ4_XS."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import Arithmetic
from tensorkeep.tensors.quantized._layouts import Blocks, Floats, fields, scale, signed

Table = npt.NDArray[np.float32]

_E2M1: Final = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)
"""Twice the numbers of F4, so that they are whole; the scales are half as large."""

_IQ4: Final = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


def _halves_of_e8m0() -> Table:
    """Return half of what each byte means as a power of two; the lowest two are subnormal."""
    exponents = np.arange(256, dtype=np.uint32)
    low = np.uint32(0x0020_0000) << np.minimum(exponents, np.uint32(1))
    return np.where(exponents < 2, low, (np.maximum(exponents, np.uint32(1)) - np.uint32(1)) << 23).view(np.float32)


def _halves_of_ue4m3() -> Table:
    """Return half of what each byte means as a number of 4 bits of exponent, 3 of mantissa, and no sign."""
    numbers = np.arange(256)
    exponents, mantissas = (numbers >> 3) & 15, (numbers & 7).astype(np.float32)
    normal = (1 + mantissas / np.float32(8)) * np.exp2((exponents - 7).astype(np.float32))
    halves = np.where(exponents == 0, mantissas * np.float32(2**-9), normal) * np.float32(0.5)
    halves[0x7F] = 0  # it would be NaN
    return halves


_E8M0: Final = _halves_of_e8m0()
_UE4M3: Final = _halves_of_ue4m3()


def mxfp4(ops: Arithmetic, blocks: Blocks) -> Floats:
    return ops.look_up(_E8M0, blocks["e"])[:, None] * ops.look_up(_E2M1, fields(ops, blocks["qs"], 4, 16))


def nvfp4(ops: Arithmetic, blocks: Blocks) -> Floats:
    numbers = ops.look_up(_E2M1, fields(ops, blocks["qs"], 4, 8)).reshape(-1, 4, 16)
    return (ops.look_up(_UE4M3, blocks["d"])[..., None] * numbers).reshape(-1, 64)


def iq4_nl(ops: Arithmetic, blocks: Blocks) -> Floats:
    return scale(ops, blocks) * ops.look_up(_IQ4, fields(ops, blocks["qs"], 4, 16))


def iq4_xs(ops: Arithmetic, blocks: Blocks) -> Floats:
    high = fields(ops, blocks["scales_h"], 2, 1)
    scales = signed(ops, fields(ops, blocks["scales_l"], 4, 1) | high << 4, 32)
    d = (scale(ops, blocks) * scales)[..., None]
    return (d * ops.look_up(_IQ4, fields(ops, blocks["qs"], 4, 16)).reshape(-1, 8, 32)).reshape(-1, 256)

"""Blocks whose groups of four or eight numbers are places in a grid: IQ2_XXS to IQ3_S, and IQ1_S and IQ1_M."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import Arithmetic
from tensorkeep.tensors.quantized._grid_points import GRID_POINTS
from tensorkeep.tensors.quantized._layouts import Array, Blocks, Floats, fields, scale

_DELTA: Final = 0.125
"""What IQ1 adds to all numbers of a group, or subtracts."""

_SIGNS: Final = np.array([number | (number.bit_count() & 1) << 7 for number in range(128)], np.uint8)
"""Signs of eight numbers. An even number of them is negative, so seven bits tell all."""


_THREES: Final = np.arange(0, 12, 3, dtype=np.int16)
_SEVENS: Final = np.arange(0, 28, 7, dtype=np.int32)
"""By how many bits groups of three, or seven, are shifted."""


@cache
def grid(name: str) -> npt.NDArray[np.float32]:
    """Return a grid: one row for each place."""
    return GRID_POINTS[name].points()


def iq2_xxs(ops: Arithmetic, blocks: Blocks) -> Floats:
    pairs = blocks["qs"].reshape(-1, 8, 2)
    signs = pairs[..., 1]
    d = scale(ops, blocks) * (0.5 + ops.floats(signs >> 28 & 15)) * 0.25
    places = ops.view(pairs[..., 0], "uint8").reshape(-1, 8, 4)
    return _signed_points(d, ops.look_up(grid("iq2_xxs"), places), _four_signs(ops, signs))


def iq2_xs(ops: Arithmetic, blocks: Blocks) -> Floats:
    places = blocks["qs"]
    d = scale(ops, blocks) * (0.5 + _small_scales(ops, blocks)) * 0.25
    points = ops.look_up(grid("iq2_xs"), places & 511)
    return _signed_points(d, points, _signs_of(ops, ops.look_up(_SIGNS, places >> 9 & 127)))


def iq2_s(ops: Arithmetic, blocks: Blocks) -> Floats:
    d = scale(ops, blocks) * (0.5 + _small_scales(ops, blocks)) * 0.25
    places = ops.shorts(blocks["qs"]) | ops.shorts(fields(ops, blocks["qh"], 2, 1)) << 8
    return _signed_points(d, ops.look_up(grid("iq2_s"), places), _signs_of(ops, blocks["signs"]))


def iq3_xxs(ops: Arithmetic, blocks: Blocks) -> Floats:
    scales = blocks["scales"]
    d = scale(ops, blocks) * (0.5 + ops.floats(scales >> 28 & 15)) * 0.5
    return _signed_points(d, ops.look_up(grid("iq3_xxs"), blocks["qs"]), _four_signs(ops, scales))


def iq3_s(ops: Arithmetic, blocks: Blocks) -> Floats:
    d = scale(ops, blocks) * (1 + 2 * _small_scales(ops, blocks))
    places = ops.shorts(blocks["qs"]) | ops.shorts(fields(ops, blocks["qh"], 1, 1)) << 8
    return _signed_points(d, ops.look_up(grid("iq3_s"), places), _signs_of(ops, blocks["signs"]))


def iq1_s(ops: Arithmetic, blocks: Blocks) -> Floats:
    qh = blocks["qh"]
    d = scale(ops, blocks) * ops.floats(2 * (qh >> 12 & 7) + 1)
    delta = _DELTA - 2 * _DELTA * ops.floats(qh >> 15 & 1)
    high = (qh[..., None] >> ops.constant(_THREES) & 7) << 8
    places = ops.shorts(blocks["qs"]).reshape(-1, 8, 4) | high
    points = ops.look_up(grid("iq1"), places).reshape(-1, 8, 32)
    return (d[..., None] * (points + delta[..., None])).reshape(-1, 256)


def iq1_m(ops: Arithmetic, blocks: Blocks) -> Floats:
    scales = blocks["scales"]
    first, second, third, fourth = (scales[:, n : n + 1] >> 12 & 15 for n in range(4))
    d = ops.floats(
        ops.view(first | second << 4 | third << 8 | fourth << 12, "float16")
    )  # the scale of the block, in pieces
    small = (scales[..., None] >> ops.constant(_THREES) & 7).reshape(-1, 16)
    d = d * ops.floats(2 * small + 1)
    high = fields(ops, blocks["qh"], 4, 1)
    places = ops.shorts(blocks["qs"]) | ops.shorts(high & 7) << 8
    delta = _DELTA - 2 * _DELTA * ops.floats(high >> 3)
    points = (ops.look_up(grid("iq1"), places) + delta[..., None]).reshape(-1, 16, 16)
    return (d[..., None] * points).reshape(-1, 256)


def _small_scales(ops: Arithmetic, blocks: Blocks) -> Floats:
    """Return the scales of sub-blocks, of four bits each."""
    return ops.floats(fields(ops, blocks["scales"], 4, 1))


def _four_signs(ops: Arithmetic, packed: Array) -> Floats:
    """Return the signs in the low 28 bits of each number: four groups of seven bits."""
    return _signs_of(ops, ops.look_up(_SIGNS, packed[..., None] >> ops.constant(_SEVENS) & 127))


def _signs_of(ops: Arithmetic, packed: Array) -> Floats:
    """Return -1 for each bit that is set, 1 for the others."""
    return 1 - 2 * ops.floats(ops.apart(packed.reshape(len(packed), -1), 1))


def _signed_points(d: Floats, points: Floats, signs: Floats) -> Floats:
    """Multiply the points of each sub-block by its scale, and then by their signs."""
    scaled = d[..., None] * points.reshape(*d.shape, -1)
    return scaled.reshape(-1, 256) * signs

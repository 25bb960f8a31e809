"""Blocks whose groups of four or eight numbers are places in a grid: IQ2_XXS to IQ3_S, and IQ1_S and IQ1_M."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from tensorkeep.tensors.quantized._grid_points import GRID_POINTS
from tensorkeep.tensors.quantized._layouts import Array, Floats, bits_of, fields, scale

_DELTA: Final = np.float32(0.125)
"""What IQ1 adds to all numbers of a group, or subtracts."""

_SIGNS: Final = np.array([number | (number.bit_count() & 1) << 7 for number in range(128)], np.uint8)
"""Signs of eight numbers. An even number of them is negative, so seven bits tell all."""


@cache
def grid(name: str) -> Floats:
    """Return a grid: one row for each place."""
    return GRID_POINTS[name].points()


def iq2_xxs(blocks: Array) -> Floats:
    pairs = blocks["qs"].reshape(-1, 8, 2)
    signs = pairs[..., 1]
    d = scale(blocks) * (np.float32(0.5) + (signs >> 28).astype(np.float32)) * np.float32(0.25)
    places = np.ascontiguousarray(pairs[..., 0]).view(np.uint8).reshape(-1, 8, 4)
    return _signed_points(d, grid("iq2_xxs")[places], _four_signs(signs))


def iq2_xs(blocks: Array) -> Floats:
    places = blocks["qs"]
    d = scale(blocks) * (np.float32(0.5) + _small_scales(blocks)) * np.float32(0.25)
    points = grid("iq2_xs")[places & np.uint16(511)]
    return _signed_points(d, points, _signs_of(_SIGNS[places >> np.uint16(9)]))


def iq2_s(blocks: Array) -> Floats:
    d = scale(blocks) * (np.float32(0.5) + _small_scales(blocks)) * np.float32(0.25)
    places = blocks["qs"] | fields(blocks["qh"], 2, 1).astype(np.uint16) << np.uint16(8)
    return _signed_points(d, grid("iq2_s")[places], _signs_of(blocks["signs"]))


def iq3_xxs(blocks: Array) -> Floats:
    scales = blocks["scales"]
    d = scale(blocks) * (np.float32(0.5) + (scales >> 28).astype(np.float32)) * np.float32(0.5)
    return _signed_points(d, grid("iq3_xxs")[blocks["qs"]], _four_signs(scales))


def iq3_s(blocks: Array) -> Floats:
    d = scale(blocks) * (1 + 2 * _small_scales(blocks))
    places = blocks["qs"] | fields(blocks["qh"], 1, 1).astype(np.uint16) << np.uint16(8)
    return _signed_points(d, grid("iq3_s")[places], _signs_of(blocks["signs"]))


def iq1_s(blocks: Array) -> Floats:
    qh = blocks["qh"]
    d = scale(blocks) * (2 * (qh >> 12 & 7) + 1)
    delta = np.where(qh & 0x8000, -_DELTA, _DELTA)
    high = (qh[..., None] >> np.arange(0, 12, 3, dtype=np.uint16) & 7) << 8
    places = blocks["qs"].reshape(-1, 8, 4) | high
    points = grid("iq1")[places].reshape(-1, 8, 32)
    return np.asarray(d[..., None] * (points + delta[..., None])).reshape(-1, 256)


def iq1_m(blocks: Array) -> Floats:
    scales = blocks["scales"]
    parts = (scales & 0xF000) >> np.array([12, 8, 4, 0], np.uint16)  # the scale of the block, in four pieces
    d = np.bitwise_or.reduce(parts, axis=-1, keepdims=True).view(np.float16).astype(np.float32)
    small = (scales[..., None] >> np.arange(0, 12, 3, dtype=np.uint16) & 7).reshape(-1, 16)
    d = d * (2 * small + 1)
    high = fields(blocks["qh"], 4, 1)
    places = blocks["qs"] | (high & np.uint8(7)).astype(np.uint16) << np.uint16(8)
    delta = np.where(high & np.uint8(8), -_DELTA, _DELTA)
    points = (grid("iq1")[places] + delta[..., None]).reshape(-1, 16, 16)
    return np.asarray(d[..., None] * points).reshape(-1, 256)


def _small_scales(blocks: Array) -> Floats:
    """Return the scales of sub-blocks, of four bits each."""
    return fields(blocks["scales"], 4, 1).astype(np.float32)


def _four_signs(packed: Array) -> Floats:
    """Return the signs in the low 28 bits of each number: four groups of seven bits."""
    groups = packed[..., None] >> np.arange(0, 28, 7, dtype=np.uint32) & np.uint32(127)
    return _signs_of(_SIGNS[groups])


def _signs_of(packed: Array) -> Floats:
    """Return -1 for each bit that is set, 1 for the others."""
    return 1 - 2 * bits_of(packed.reshape(len(packed), -1)).astype(np.float32)


def _signed_points(d: Floats, points: Floats, signs: Floats) -> Floats:
    """Multiply the points of each sub-block by its scale, and then by their signs."""
    scaled = d[..., None] * points.reshape(*d.shape, -1)
    return scaled.reshape(-1, 256) * signs

"""Blocks of elements that share a scale: which scales a part of a tensor needs, and one for each element. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import ceil, prod
from typing import Final, TypeAlias

from tensorkeep.arrays import Arithmetic
from tensorkeep.quantized._numbers import Array, Floats
from tensorkeep.quantized._record import Stored, wrong

_N_SHAPES: Final = 256
"""Shapes that are remembered: the layers of a model have few."""

Box: TypeAlias = tuple[range, ...]
"""A part of a tensor: positions along each dimension, all next to each other."""


def block_of(
    name: str,
    shape: tuple[int, ...],
    scale: Stored,
    parts: Mapping[str, str],
    *,
    declared: tuple[int, ...] | None = None,
    usual: tuple[int, ...] | None = None,
) -> tuple[int, ...]:
    """Return how many elements along each dimension share a scale, from the shapes of both.

    `declared` is the shape of a block in the configuration, which matters only if it divides none exactly;
    `usual` is what such scales are for if it says nothing.
    """
    block, is_certain = _likely_block(shape, scale.shape, declared or usual)
    if is_certain:
        return block
    if block:
        raise wrong(
            name,
            "does not say how large its blocks are",
            parts,
            kind="missing",
            expected="a configuration beside the file (config.json)",
            found=f"{scale} for {list(shape)}: blocks of {list(block)}, or larger ones",
        )
    raise wrong(
        name,
        "has scales that do not fit its shape",
        parts,
        expected=f"blocks of {list(shape)}",
        found=str(scale) + _source_of_block(declared, usual),
    )


def _source_of_block(declared: tuple[int, ...] | None, usual: tuple[int, ...] | None) -> str:
    if declared:
        return f", and a block of {list(declared)} in the configuration"
    return f", and no block in the configuration; it is usually {list(usual)}" if usual else ""


@lru_cache(_N_SHAPES)
def _likely_block(
    shape: tuple[int, ...], scales: tuple[int, ...], declared: tuple[int, ...] | None
) -> tuple[tuple[int, ...], bool]:
    """Return the smallest likely block, or nothing, and whether there is no other."""
    grid = grid_of(shape, scales)
    likely = [] if grid is None else list(map(_extents, shape, grid, _from_the_end(declared, len(shape))))
    if not all(likely):
        return (), False
    return tuple(min(extents) for extents in likely), grid is not None and all(len(each) == 1 for each in likely)


def grid_of(shape: tuple[int, ...], scales: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return how many blocks there are along each dimension; None if scales of this shape are not for that shape."""
    if prod(scales) == 1:
        return (1,) * len(shape)
    if len(scales) == len(shape):
        return scales
    if len(scales) < len(shape) and scales == shape[: len(scales)]:  # one for each row, or for each matrix
        return (*scales, *(1,) * (len(shape) - len(scales)))
    return None


def _extents(whole: int, n: int, declared: int | None) -> set[int]:
    """Return the likely extents of `n` blocks that cover a dimension: even ones, or powers of two."""
    if n < 1 or n > whole:
        return set()
    if n in {1, whole}:
        return {whole // n}
    if declared and ceil(whole / declared) == n:
        return {declared}
    even = ceil(whole / n)
    likely = {1 << (even - 1).bit_length()} | ({even} if whole % n == 0 else set())
    return {extent for extent in likely if ceil(whole / extent) == n}


def _from_the_end(declared: tuple[int, ...] | None, ndim: int) -> tuple[int | None, ...]:
    given = (declared or ())[-ndim:]
    return (*(None,) * (ndim - len(given)), *given)


def scales_at(box: Box, block: tuple[int, ...], shape: tuple[int, ...], stored: tuple[int, ...]) -> tuple[slice, ...]:
    """Return the index of the stored scales that a part of the tensor needs."""
    if prod(stored) == 1:
        return (slice(None),) * len(stored)
    cut = tuple(
        slice(axis.start // extent, ceil(axis.stop / extent)) for axis, extent in zip(box, block, strict=True)
    )
    return cut[: len(stored)] if len(stored) < len(shape) else cut


def spread(ops: Arithmetic, scales: Array, box: Box, block: tuple[int, ...]) -> Array:
    """Return scales that can be multiplied with the elements of a part: one for each, or for whole dimensions."""
    if prod(scales.shape) == 1:
        return scales.reshape(())
    scales = scales.reshape(*scales.shape, *(1,) * (len(box) - scales.ndim))
    for axis, (places, extent) in enumerate(zip(box, block, strict=True)):
        if scales.shape[axis] > 1 and extent > 1:
            scales = ops.take(scales, ops.positions(places) // extent - places.start // extent, axis)
    return scales


def scaled(ops: Arithmetic, values: Floats, scales: Floats, box: Box, block: tuple[int, ...]) -> Floats:
    """Multiply the elements of a part by their scales, in place."""
    last, extent = box[-1], block[-1]
    if prod(scales.shape) > 1 and extent > 1 and not last.start % extent and not len(last) % extent:
        rows = spread(ops, scales.reshape(*scales.shape, *(1,) * (len(box) - scales.ndim)), box[:-1], block[:-1])
        grouped = values.reshape(*values.shape[:-1], -1, extent)
        grouped *= rows[..., None]
        return grouped.reshape(values.shape)
    values *= spread(ops, scales, box, block)
    return values

"""A NumPy index in two parts: what to read, and what to do with it. Pure.

An index says both which positions of each axis are needed, and what becomes of them: an axis is dropped, added,
reversed, repeated. `parse_index` separates the two. `axes` are the positions to read, ascending and without
repetition, so that a file is read from front to back. `local` is a NumPy index that makes the result from the block
that was read. Since NumPy itself applies `local`, every index means exactly what it means there.

    >>> selection = parse_index((slice(None, None, -2), [3, 1, 3]), (5, 4))
    >>> selection.axes
    (range(0, 5, 2), array([1, 3]))
    >>> selection.local
    (slice(None, None, -1), array([1, 0, 1]))
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from operator import index as as_int
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.errors import SelectionError

Positions = npt.NDArray[np.intp]
Axis = range | Positions
"""Positions along one axis, ascending, without repetition."""


class Selection(msgspec.Struct, frozen=True):
    """What an index selects from a tensor.

    Attributes:
        shape: The tensor's shape in elements.
        axes: For each dimension, the positions to read; their outer product is the block.
        local: The NumPy index that makes the result from the block.
    """

    shape: tuple[int, ...]
    axes: tuple[Axis, ...]
    local: tuple[Any, ...]

    @property
    def block_shape(self) -> tuple[int, ...]:
        """Elements of the block along each dimension."""
        return tuple(len(axis) for axis in self.axes)

    @property
    def n_elements(self) -> int:
        """Elements of the block."""
        return prod(self.block_shape)

    @property
    def has_whole_rows(self) -> bool:
        """Whether all but the first dimension are read whole and in order."""
        inner = zip(self.axes[1:], self.shape[1:], strict=True)
        return all(isinstance(axis, range) and axis == range(extent) for axis, extent in inner)

    @property
    def keeps_order(self) -> bool:
        """Whether every library can apply `local`: it only drops and adds dimensions."""
        return not any(isinstance(item, np.ndarray) or item == slice(None, None, -1) for item in self.local)

    def part(self, index: tuple[int | slice, ...]) -> Selection:
        """Return a part of the block by an index of its first dimensions, integers that keep them or slices."""
        taken = [
            axis[item : item + 1] if isinstance(item, int) else axis[item]
            for axis, item in zip(self.axes, index, strict=False)
        ]
        return Selection(self.shape, (*taken, *self.axes[len(index) :]), ())

    def apply(self, block: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Make the result from the block; it is C-contiguous."""
        result: npt.NDArray[Any] = np.asarray(block[self.local])
        if not result.size:  # the strides of an empty array may be anything
            return np.empty(result.shape, result.dtype)
        return result if result.flags.c_contiguous else result.copy()


def parse_index(index: Any, shape: tuple[int, ...]) -> Selection:
    """Separate an index into what to read and what to do with it."""
    items = _expand(index if isinstance(index, tuple) else (index,), shape)
    axes: list[Axis] = []
    local: list[Any] = []
    for item in items:
        if item is None or item is Ellipsis:
            local.append(item)
            continue
        axis = len(axes)
        positions, after = _parse_item(item, axis, shape[axis])
        axes.append(positions)
        local.append(after)
    _check_arrays(local)
    return Selection(shape, tuple(axes), tuple(local))


def _check_arrays(local: list[Any]) -> None:
    """Refuse arrays of positions that cannot be broadcast, before anything is read."""
    shapes = [item.shape for item in local if isinstance(item, np.ndarray)]
    if len(shapes) < 2:
        return
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        spelled = " ".join(str(shape) for shape in shapes)
        raise SelectionError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {spelled}"
        ) from None


def _expand(items: tuple[Any, ...], shape: tuple[int, ...]) -> list[Any]:
    """Spell an index out: one item per dimension, and None for each new one."""
    spelled: list[Any] = []
    for item in items:
        spelled.extend(_split_mask(item))
    n_ellipses = sum(item is Ellipsis for item in spelled)
    if n_ellipses > 1:
        raise SelectionError("an index can only have a single ellipsis ('...')")
    n_indexed = sum(item is not None and item is not Ellipsis for item in spelled)
    if n_indexed > len(shape):
        raise SelectionError(
            f"too many indices: the tensor is {len(shape)}-dimensional, but {n_indexed} were indexed",
            found=f"shape {list(shape)}",
        )
    if not n_ellipses:
        spelled.append(Ellipsis)
    at = next(place for place, item in enumerate(spelled) if item is Ellipsis)
    rest: list[Any] = [slice(None)] * (len(shape) - n_indexed)
    # An ellipsis for no dimension stays: between arrays of positions it tells NumPy that they are not adjacent.
    return spelled[:at] + (rest or [Ellipsis]) + spelled[at + 1 :]


def _split_mask(item: Any) -> list[Any]:
    """Turn lists into arrays, and a mask into one array of positions for each dimension that it covers."""
    if item is None or item is Ellipsis or isinstance(item, (slice, int)):
        if isinstance(item, bool):
            raise SelectionError("a single boolean cannot be an index here", hint="Use None, or an empty slice")
        return [item]
    if not hasattr(item, "shape") and hasattr(item, "__index__"):
        return [as_int(item)]
    array = np.asarray(item)
    if isinstance(item, list) and not array.size:  # NumPy makes floats of it, which could not be positions
        array = array.astype(np.intp)
    if array.dtype.kind == "b" and array.ndim:
        return [_Mask(positions, extent) for positions, extent in zip(array.nonzero(), array.shape, strict=True)]
    if array.dtype.kind not in "iu":
        raise SelectionError(
            "only integers, slices (`:`), ellipsis (`...`), None and integer or boolean arrays are valid indices",
            found=repr(item) if array.size < 10 else f"an array of {array.dtype}",
        )
    return [int(array) if array.ndim == 0 else array]


class _Mask(msgspec.Struct, frozen=True):
    """Positions from a boolean mask along one dimension, and the extent of the mask."""

    positions: Positions
    extent: int


def _parse_item(item: Any, axis: int, extent: int) -> tuple[Axis, Any]:
    if isinstance(item, slice):
        return _parse_slice(item, extent)
    if isinstance(item, _Mask):
        if item.extent != extent:
            raise SelectionError(
                f"boolean index did not match the tensor along dimension {axis}",
                expected=f"a mask of {extent} elements",
                found=f"{item.extent}",
            )
        return _parse_positions(item.positions, axis, extent)
    if isinstance(item, np.ndarray):
        return _parse_positions(item, axis, extent)
    return _parse_integer(as_int(item), axis, extent)


def _parse_slice(item: slice, extent: int) -> tuple[Axis, Any]:
    try:
        wanted = range(*item.indices(extent))
    except (TypeError, ValueError) as error:
        raise SelectionError(str(error), found=repr(item)) from None
    if len(wanted) <= 1:  # its step may be any number
        return range(wanted.start, wanted.start + len(wanted)), slice(None)
    if wanted.step > 0:
        return wanted, slice(None)
    return wanted[::-1], slice(None, None, -1)


def _parse_integer(position: int, axis: int, extent: int) -> tuple[Axis, Any]:
    if not -extent <= position < extent:
        raise SelectionError(f"index {position} is out of bounds for axis {axis} with size {extent}")
    position %= extent
    return range(position, position + 1), 0


def _parse_positions(positions: npt.NDArray[Any], axis: int, extent: int) -> tuple[Axis, Any]:
    if positions.size:
        low, high = int(positions.min()), int(positions.max())
        if low < -extent or high >= extent:
            outside = low if low < -extent else high
            raise SelectionError(f"index {outside} is out of bounds for axis {axis} with size {extent}")
    absolute = np.where(positions < 0, positions + extent, positions).astype(np.intp)
    unique, inverse = np.unique(absolute, return_inverse=True)
    return unique, inverse.reshape(positions.shape)


def cover_run(start: int, stop: int, shape: tuple[int, ...]) -> Iterator[tuple[tuple[int | slice, ...], int, int]]:
    """Cover a run of elements, in C order, by one or two blocks less than three times as large in all."""
    if start == stop or not shape:
        yield (), start, stop
        return
    row = prod(shape[1:])
    first, last = start // row, -(-stop // row)
    if stop - start >= row:
        yield (slice(first, last),), start - first * row, stop - first * row
    elif last - first == 2:
        yield from cover_run(start, (first + 1) * row, shape)
        yield from cover_run((first + 1) * row, stop, shape)
    else:
        for index, begin, end in cover_run(start - first * row, stop - first * row, shape[1:]):
            yield (first, *index), begin, end

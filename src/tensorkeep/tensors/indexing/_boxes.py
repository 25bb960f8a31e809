"""A selection cut into reads that are neither too small nor too large. Pure.

A box is a part of the selected block and the one run of elements that covers it in the file. Rows far apart are read
one by one. Rows close together, or columns of short rows, are read in one run with the unwanted elements between
them, since a read costs as much as some tens of kilobytes.

Strides say where an element is: for each dimension, elements in the file from one entry to the next. A stored
tensor's follow from its shape; a view's can leave gaps, or let entries overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import mul

import msgspec

from tensorkeep.limits import GAP_NBYTES, READ_NBYTES
from tensorkeep.tensors.indexing._selection import Axis, Selection


class Box(msgspec.Struct, frozen=True):
    """One read.

    Attributes:
        axes: For each dimension, the positions that the box holds.
        into: The box's place in the block, a slice for each dimension.
        start: First element of the covering run, counted from the start of the tensor.
        stop: One past the last element of the run.
        is_dense: Whether the run holds the elements of the box in C order, and no others.
    """

    axes: tuple[Axis, ...]
    into: tuple[slice, ...]
    start: int
    stop: int
    is_dense: bool


def c_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a tensor in C order, without gaps, in elements."""
    return tuple(accumulate(shape[:0:-1], mul, initial=1))[::-1] if shape else ()


def cut_into_boxes(
    selection: Selection,
    bits: int,
    *,
    strides: Sequence[int] | None = None,
    max_gap_nbytes: int = GAP_NBYTES,
    max_nbytes: int = READ_NBYTES,
) -> Iterator[Box]:
    """Cut a selection into reads."""
    if not selection.n_elements:
        return
    strides = c_strides(selection.shape) if strides is None else strides
    max_gap = max(1, max_gap_nbytes * 8 // bits)
    max_elements = max(1, max_nbytes * 8 // bits)

    def cut(axes: tuple[Axis, ...], origin: tuple[int, ...]) -> Iterator[Box]:
        start, stop = _cover(axes, strides)
        into = tuple(slice(at, at + len(axis)) for at, axis in zip(origin, axes, strict=True))
        box = Box(axes, into, start, stop, _is_dense(axes, strides))
        outer = next((place for place, axis in enumerate(axes) if len(axis) > 1), None)
        small = stop - start <= max_elements and _widest_gap(axes, strides) <= max_gap
        if outer is None or small or box.is_dense:
            yield box
            return
        inner_start, inner_stop = _cover(axes[outer + 1 :], strides[outer + 1 :])
        inner = inner_stop - inner_start
        if _widest_gap(axes[outer + 1 :], strides[outer + 1 :]) > max_gap:
            runs: Iterable[tuple[int, int]] = ((at, at + 1) for at in range(len(axes[outer])))
        else:
            runs = _runs(axes[outer], strides[outer], inner, max_gap, max_elements)
        for begin, end in runs:
            part = (*axes[:outer], axes[outer][begin:end], *axes[outer + 1 :])
            yield from cut(part, (*origin[:outer], origin[outer] + begin, *origin[outer + 1 :]))

    yield from cut(selection.axes, (0,) * len(selection.axes))


def _is_dense(axes: tuple[Axis, ...], strides: Sequence[int]) -> bool:
    n_elements = 1
    for axis, stride in zip(reversed(axes), reversed(strides), strict=True):
        if len(axis) > 1 and (stride != n_elements or int(axis[-1] - axis[0]) + 1 != len(axis)):
            return False
        n_elements *= len(axis)
    return True


def _cover(axes: tuple[Axis, ...], strides: Sequence[int]) -> tuple[int, int]:
    """Return the half-open run of elements from the first that is selected to the last."""
    start = sum(int(axis[0]) * stride for axis, stride in zip(axes, strides, strict=True))
    last = sum(int(axis[-1]) * stride for axis, stride in zip(axes, strides, strict=True))
    return start, last + 1


def _widest_gap(axes: tuple[Axis, ...], strides: Sequence[int]) -> int:
    """Return the length of the longest run of unwanted elements."""
    widest = 0
    inner = 1
    for axis, stride in zip(reversed(axes), reversed(strides), strict=True):
        if len(axis) > 1:
            widest = max(widest, _widest_step(axis) * stride - inner)
        inner += int(axis[-1] - axis[0]) * stride
    return widest


def _widest_step(axis: Axis) -> int:
    if isinstance(axis, range):
        return axis.step
    return int((axis[1:] - axis[:-1]).max())


def _runs(axis: Axis, stride: int, inner: int, max_gap: int, max_elements: int) -> Iterator[tuple[int, int]]:
    """Group neighboring positions of an axis, as half-open ranges of indices into it."""
    if isinstance(axis, range):
        step = axis.step * stride
        together = 1 if step - inner > max_gap else max(1, (max_elements - inner) // step + 1)
        for begin in range(0, len(axis), together):
            yield begin, min(begin + together, len(axis))
        return
    begin = 0
    positions = axis.tolist()
    for place in range(1, len(positions)):
        gap = (positions[place] - positions[place - 1]) * stride - inner
        reach = (positions[place] - positions[begin]) * stride + inner
        if gap > max_gap or reach > max_elements:
            yield begin, place
            begin = place
    yield begin, len(positions)

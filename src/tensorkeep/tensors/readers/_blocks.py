"""Blocks, copied out of memory or a source: the elements at the outer product of positions along each axis."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorkeep.arrays.elements import unpack
from tensorkeep.dtypes import DType
from tensorkeep.limits import ARENA_NBYTES, COPIED_BY_ONE_NBYTES
from tensorkeep.parallel import try_to_start
from tensorkeep.tensors.indexing import Box, Positions, Selection, cut_into_boxes, runs_of
from tensorkeep.transport import ByteRange, ByteSource, RunSource, reads_runs

Array = npt.NDArray[Any]

_TILE_LENGTH = 256
"""Elements along each side of a tile: the cache holds the lines of both sides, and copying is four times as fast."""


_MAX_RUN_NBYTES = 2**18
"""Bytes of a run above which it is better read by itself."""


def take_block(whole: Array, selection: Selection) -> Array:
    """Copy a block out of an array without touching other elements, which may be pages of a file."""
    slices = tuple(
        slice(axis.start, axis.stop, axis.step) if isinstance(axis, range) else slice(None) for axis in selection.axes
    )
    lists = {place: axis for place, axis in enumerate(selection.axes) if not isinstance(axis, range)}
    block = whole[(*slices, ...)]  # an array, also without dimensions
    return np.require(_listed(block, lists), requirements="C") if lists else _copied(block)


def put_block(into: Array, whole: Array, selection: Selection | None) -> None:
    """Copy a block of one array into another without touching other elements."""
    if selection is None:
        _copy(into, whole)
    elif all(isinstance(axis, range) for axis in selection.axes):
        slices = [slice(axis.start, axis.stop, axis.step) for axis in selection.axes if isinstance(axis, range)]
        index: Any = (*slices, ...)
        _copy(into, whole[index])
    else:
        _copy(into, take_block(whole, selection))


def _listed(array: Array, lists: Mapping[int, Positions]) -> Array:
    """Copy the elements at listed positions of some axes, without touching others."""
    if len(lists) == 1 and array.flags.c_contiguous and array.flags.aligned:  # else `take` would first copy all
        ((axis, positions),) = lists.items()
        return array.take(positions, axis=axis)
    order = [*lists, *(axis for axis in range(array.ndim) if axis not in lists)]
    listed: Array = array.transpose(order)[np.ix_(*lists.values())]
    return listed.transpose(np.argsort(order))


def _copied(block: Array) -> Array:
    """Copy a block of a mapping; a large one by two threads, since page faults take longer than copying."""
    if block.size <= _TILE_LENGTH**2:
        return block.copy()
    owned = np.empty(block.shape, block.dtype)
    if block.nbytes < COPIED_BY_ONE_NBYTES or len(block) < 2:
        _copy(owned, block)
        return owned
    half = len(block) // 2
    other = threading.Thread(target=_copy, args=(owned[:half], block[:half]))
    is_shared = try_to_start(other)
    _copy(owned[half:], block[half:])
    if is_shared:
        other.join()
    else:
        _copy(owned[:half], block[:half])
    return owned


def _copy(into: Array, block: Array) -> None:
    """Copy a block, tile by tile if neighbors in one array are far apart in the other."""
    if block.size <= _TILE_LENGTH**2 or (here := _closest_axis(block)) == (there := _closest_axis(into)):
        np.copyto(into, block)
        return
    tile = [slice(None)] * block.ndim
    for begin in range(0, block.shape[here], _TILE_LENGTH):
        tile[here] = slice(begin, begin + _TILE_LENGTH)
        for start in range(0, block.shape[there], _TILE_LENGTH):
            tile[there] = slice(start, start + _TILE_LENGTH)
            np.copyto(into[tuple(tile)], block[tuple(tile)])


def _closest_axis(array: Array) -> int:
    return min(range(array.ndim), key=lambda axis: (array.shape[axis] == 1, array.strides[axis], -axis), default=0)


def read_block(
    source: ByteSource, start: int, dtype: DType, selection: Selection, strides: Sequence[int], block: Array
) -> None:
    """Read a block from a source, in reads of bounded size."""
    if reads_runs(source) and _read_runs(source, start, dtype, selection, strides, block):
        return
    for batch in _batches(source, dtype, selection, strides):
        _read_boxes(source, start, dtype, batch, strides, block)


def _read_runs(
    source: RunSource, start: int, dtype: DType, selection: Selection, strides: Sequence[int], block: Array
) -> bool:
    """Read a block that consists of many runs far apart; return False, having read nothing, if it does not."""
    if dtype.is_packed or not block.flags.c_contiguous:
        return False
    runs = runs_of(selection, strides)
    if runs is None or runs.n_elements * dtype.itemsize > _MAX_RUN_NBYTES:
        return False
    nbytes = runs.n_elements * dtype.itemsize
    starts = runs.starts * dtype.itemsize + start
    if len(starts) < 2 or int(np.diff(starts).min()) - nbytes <= source.gap_nbytes:
        return False
    return source.read_runs(starts.tolist(), nbytes, block.reshape(-1).view(np.uint8).data)


def spans_of_block(
    source: ByteSource, start: int, dtype: DType, selection: Selection, strides: Sequence[int]
) -> list[list[ByteRange]]:
    """Return the ranges that `read_block` would read, batch by batch."""
    batches = _batches(source, dtype, selection, strides)
    return [[_moved(_span_of_run(box, dtype), start) for box in batch] for batch in batches]


def _moved(span: ByteRange, by: int) -> ByteRange:
    return ByteRange(span.start + by, span.stop + by)


def _read_boxes(
    source: ByteSource, start: int, dtype: DType, boxes: list[Box], strides: Sequence[int], block: Array
) -> None:
    """Read boxes in parallel; their runs are freed before the next boxes are read."""
    spans = [_span_of_run(box, dtype) for box in boxes]
    places = [_place_of(block, box, dtype) for box in boxes]
    runs = [
        np.empty(len(span), np.uint8) if place is None else place for span, place in zip(spans, places, strict=True)
    ]
    source.read_into((start + span.start, run.data) for span, run in zip(spans, runs, strict=True))
    for box, run, place in zip(boxes, runs, places, strict=True):
        if place is None:
            elements = _elements_of_run(run, box, dtype, block.dtype)
            _copy(block[box.into], _pick(elements, box, strides))


def _batches(source: ByteSource, dtype: DType, selection: Selection, strides: Sequence[int]) -> Iterator[list[Box]]:
    """Cut a selection into boxes as suits the source, in batches whose runs fit in memory together."""
    boxes = cut_into_boxes(selection, dtype.bits, strides=strides, max_gap_nbytes=source.gap_nbytes)
    batch: list[Box] = []
    nbytes = 0
    for box in boxes:
        if batch and nbytes + len(_span_of_run(box, dtype)) > ARENA_NBYTES:
            yield batch
            batch, nbytes = [], 0
        batch.append(box)
        nbytes += len(_span_of_run(box, dtype))
    if batch:
        yield batch


def _place_of(block: Array, box: Box, dtype: DType) -> npt.NDArray[np.uint8] | None:
    """Return the part of the block for a box, if the file's run can be read straight into it; else None."""
    place = block[box.into] if box.into else block  # which indexing would copy where it has no dimensions
    if dtype.is_packed or not box.is_dense or not place.flags.c_contiguous:
        return None
    return place.reshape(-1).view(np.uint8)


def _span_of_run(box: Box, dtype: DType) -> ByteRange:
    """Return the whole bytes that hold a run, counted from the tensor's first byte."""
    first = box.start - box.start % dtype.n_per_group
    return ByteRange(first * dtype.bits // 8, -(-box.stop * dtype.bits // 8))


def _elements_of_run(run: npt.NDArray[np.uint8], box: Box, dtype: DType, viewed: np.dtype[Any]) -> Array:
    """Return a run's elements, of shape (stop - start,)."""
    if dtype.is_packed:
        return unpack(run, dtype.bits, box.start % dtype.n_per_group, box.stop - box.start)
    return run.view(viewed)


def _pick(run: Array, box: Box, strides: Sequence[int]) -> Array:
    """Return the selected elements of a run, in the shape of the box."""
    extents = [len(axis) if isinstance(axis, range) else int(axis[-1] - axis[0]) + 1 for axis in box.axes]
    steps = [
        run.itemsize * stride * (axis.step if isinstance(axis, range) else 1)
        for axis, stride in zip(box.axes, strides, strict=True)
    ]
    picked: Array = np.lib.stride_tricks.as_strided(run, extents, steps, writeable=False)
    lists = {place: axis - axis[0] for place, axis in enumerate(box.axes) if not isinstance(axis, range)}
    return _listed(picked, lists) if lists else picked

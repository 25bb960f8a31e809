"""A selection cut into reads: disjoint, complete, in the order of the file, within the bounds, whatever these are."""

from __future__ import annotations

from itertools import pairwise, product
from math import prod

import hypothesis.strategies as st
import numpy as np
from hypothesis import example, given, settings

from tensorkeep.errors import SelectionError
from tensorkeep.tensors.indexing._boxes import Box, cut_into_boxes
from tensorkeep.tensors.indexing._selection import Selection, parse_index
from tests.support.soak import rounds
from tests.support.tensors.index_strategies import SHAPES, indices

BITS = st.sampled_from([4, 6, 8, 16, 32, 64])


def flat_positions(box: Box, shape: tuple[int, ...]) -> list[int]:
    """Return the wanted elements of a box, counted in C order from the start of the tensor."""
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return [sum(int(p) * s for p, s in zip(place, strides, strict=True)) for place in product(*box.axes)]


@st.composite
def selections(draw: st.DrawFn) -> Selection:
    shape = draw(SHAPES)
    try:
        return parse_index(draw(indices(shape)), shape)
    except SelectionError:
        return parse_index(..., shape)


@given(selection=selections(), bits=BITS, max_gap_nbytes=st.integers(1, 64), max_nbytes=st.integers(1, 64))
@example(selection=parse_index((slice(None), slice(None, None, 6)), (7, 7)), bits=64, max_gap_nbytes=1, max_nbytes=1)
@example(selection=parse_index((slice(None), [0, 3, 6]), (7, 7)), bits=4, max_gap_nbytes=64, max_nbytes=1)
@example(selection=parse_index([0, 6], (7, 0)), bits=8, max_gap_nbytes=1, max_nbytes=1)
@settings(max_examples=rounds(150, 6_000))
def test_boxes_are_the_block(selection: Selection, bits: int, max_gap_nbytes: int, max_nbytes: int) -> None:
    boxes = list(cut_into_boxes(selection, bits, max_gap_nbytes=max_gap_nbytes, max_nbytes=max_nbytes))

    times_filled = np.zeros(selection.block_shape, int)
    for box in boxes:
        times_filled[box.into] += 1
        for axis, whole, into in zip(box.axes, selection.axes, box.into, strict=True):
            assert list(axis) == list(whole[into])
    assert (times_filled == 1).all()
    assert len(boxes) <= selection.n_elements


@given(selection=selections(), bits=BITS, max_gap_nbytes=st.integers(1, 64), max_nbytes=st.integers(1, 64))
@settings(max_examples=rounds(150, 6_000))
def test_runs_cover_their_box_within_the_bounds(
    selection: Selection, bits: int, max_gap_nbytes: int, max_nbytes: int
) -> None:
    boxes = list(cut_into_boxes(selection, bits, max_gap_nbytes=max_gap_nbytes, max_nbytes=max_nbytes))

    for box in boxes:
        wanted = flat_positions(box, selection.shape)
        assert wanted == sorted(wanted)
        assert (box.start, box.stop) == (wanted[0], wanted[-1] + 1)
        assert box.is_dense == (len(wanted) == box.stop - box.start)
        if not box.is_dense:
            assert (box.stop - box.start) * bits <= max(max_nbytes * 8, bits)
            gaps = [later - earlier - 1 for earlier, later in pairwise(wanted)]
            assert max(gaps) * bits <= max(max_gap_nbytes * 8, bits)
    assert all(earlier.stop <= later.start for earlier, later in pairwise(boxes)), "not in the order of the file"


@given(selection=selections(), bits=BITS)
@settings(max_examples=rounds(75, 3_000))
def test_with_room_enough_one_read_will_do(selection: Selection, bits: int) -> None:
    boxes = list(cut_into_boxes(selection, bits, max_gap_nbytes=10**6, max_nbytes=10**6))

    assert len(boxes) == min(1, selection.n_elements)


def test_a_dense_block_is_one_read_however_large() -> None:
    boxes = list(cut_into_boxes(parse_index(slice(10, 90), (100, 1_000, 1_000)), 64))

    assert [(box.start, box.stop) for box in boxes] == [(10_000_000, 90_000_000)]


def test_rows_far_apart_are_read_one_by_one_and_rows_close_together_in_one() -> None:
    far = list(cut_into_boxes(parse_index(slice(None, None, 100), (1_000, 100_000)), 8))
    close = list(cut_into_boxes(parse_index(slice(None, None, 2), (1_000, 100)), 8))

    assert [box.stop - box.start for box in far] == [100_000] * 10
    assert [box.stop - box.start for box in close] == [998 * 100 + 100]


def test_no_run_with_unwanted_elements_is_longer_than_a_read() -> None:
    boxes = list(cut_into_boxes(parse_index((slice(None), 0), (100_000, 1_000)), 8))

    assert all(box.stop - box.start <= 16 * 2**20 for box in boxes)
    assert len(boxes) == 6

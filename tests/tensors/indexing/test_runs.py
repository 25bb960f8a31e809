"""A selection as runs of equal length."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorkeep.tensors.indexing._boxes import c_strides
from tensorkeep.tensors.indexing._runs import runs_of
from tensorkeep.tensors.indexing._selection import parse_index

SHAPES = st.lists(st.integers(1, 6), min_size=0, max_size=4).map(tuple)


@st.composite
def selections(draw):
    shape = draw(SHAPES)
    index = []
    for extent in shape:
        start = draw(st.integers(0, extent - 1))
        kinds = ["all", "slice", "step", "one"]
        kind = draw(st.sampled_from(kinds if any(isinstance(item, list) for item in index) else [*kinds, "list"]))
        index.append(
            {
                "all": slice(None),
                "slice": slice(start, draw(st.integers(start + 1, extent))),
                "step": slice(start, None, draw(st.integers(1, 3))),
                "list": sorted(draw(st.sets(st.integers(0, extent - 1), min_size=1))),
                "one": start,
            }[kind]
        )
    return shape, tuple(index)


@given(selections())
def test_runs_are_the_elements_of_the_block(selected) -> None:
    shape, index = selected
    selection = parse_index(index, shape)
    numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    block = numbers[np.ix_(*[np.asarray(axis) for axis in selection.axes])] if shape else numbers

    runs = runs_of(selection, c_strides(shape))

    assert runs is not None
    found = (runs.starts[:, None] + np.arange(runs.n_elements)).reshape(-1)
    assert np.array_equal(found, block.reshape(-1))


@pytest.mark.parametrize(
    ("index", "n_runs", "n_elements"),
    [
        (np.s_[:], 1, 6000),
        (np.s_[2], 1, 300),
        (np.s_[2:5], 1, 900),
        (np.s_[:, 3], 20, 15),
        (np.s_[:, :, 3:7], 400, 4),
        (np.s_[:, 2:5], 20, 45),
        (np.s_[[1, 5]], 2, 300),
    ],
    ids=str,
)
def test_runs_are_as_long_as_can_be(index, n_runs, n_elements) -> None:
    runs = runs_of(parse_index(index, (20, 20, 15)), c_strides((20, 20, 15)))

    assert runs is not None
    assert (len(runs.starts), runs.n_elements) == (n_runs, n_elements)


def test_nothing_has_no_runs() -> None:
    assert runs_of(parse_index(np.s_[5:5], (20, 3)), (3, 1)) is None

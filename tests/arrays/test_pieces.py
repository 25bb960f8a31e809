"""Tensors cut into pieces of bounded size: put together again they are the tensor."""

from __future__ import annotations

from math import prod

import hypothesis.strategies as st
import numpy as np
from hypothesis import example, given

from tensorkeep.arrays._pieces import pieces


@given(
    shape=st.lists(st.integers(0, 5), max_size=4).map(tuple),
    itemsize=st.sampled_from([1, 2, 4, 8]),
    max_nbytes=st.integers(1, 200),
)
@example(shape=(), itemsize=8, max_nbytes=1)
@example(shape=(5, 0, 3), itemsize=8, max_nbytes=1)
def test_pieces_are_the_tensor_in_order_and_keep_the_bound(
    shape: tuple[int, ...], itemsize: int, max_nbytes: int
) -> None:
    array = np.arange(prod(shape), dtype=f"u{itemsize}").reshape(shape)

    cut = [array[index] for index in pieces(shape, itemsize, max_nbytes)]

    assert np.concatenate([piece.reshape(-1) for piece in cut]).tolist() == array.reshape(-1).tolist()
    assert all(piece.nbytes <= max(max_nbytes, itemsize) for piece in cut)


def test_pieces_are_large() -> None:
    assert len(list(pieces((1_000, 1_000), 4, 1_000_000))) == 4
    assert len(list(pieces((3, 1_000_000), 4, 1_000_000))) == 12

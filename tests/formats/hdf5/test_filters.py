"""Filters of chunks are undone, whatever the shape of what they were given."""

from __future__ import annotations

import random

import pytest

from tensorkeep.formats.hdf5.chunks._filters import SHUFFLE, Filter, unfilter


def shuffled(data: bytes, size: int) -> bytes:
    whole = len(data) // size * size
    return b"".join(data[place:whole:size] for place in range(size)) + data[whole:]


@pytest.mark.parametrize("n_elements", [2, 3, 100, 1000])
@pytest.mark.parametrize("size", [2, 4, 8, 101, 5000])
@pytest.mark.parametrize("n_left_over", [0, 1])
def test_shuffled_bytes_are_put_back(n_elements: int, size: int, n_left_over: int) -> None:
    data = random.Random(0).randbytes(n_elements * size + n_left_over)
    shuffle = Filter(SHUFFLE, "shuffle", (size,))
    assert bytes(unfilter(shuffled(data, size), (shuffle,), 0, len(data))) == data

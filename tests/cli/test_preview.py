"""What is printed of a large result: the same text as from all of it, read without all of it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import tensorkeep
from tensorkeep.cli.inputs._preview import read_preview
from tensorkeep.errors import SelectionError


class CountingFile(io.BytesIO):
    """A file object that counts what is read from it."""

    n_read = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.n_read += len(data)
        return data

    def readinto(self, buffer: Any, /) -> int:
        n_read = super().readinto(buffer)
        self.n_read += n_read
        return n_read


def stored(array: np.ndarray) -> CountingFile:
    return CountingFile(safetensors.numpy.save({"a": array}))


@given(st.data(), arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=24))
def test_the_text_is_that_of_the_whole_result(data: st.DataObject, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)
    index = data.draw(arrays.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
    items = index if isinstance(index, tuple) else (index,)

    with tensorkeep.open(stored(array)) as file:
        preview = read_preview(file["a"], items)

    assert preview.shape == array[items].shape
    assert preview.lines(80) == np.array2string(np.asarray(array[items]), max_line_width=80).split("\n")


@pytest.mark.parametrize(
    "index",
    [
        (),
        (...,),
        (slice(None, None, -1),),
        (slice(None), slice(2, 900, 7)),
        (5, None, ..., slice(None, None, -3)),
        (slice(-7, None), 3),
        (slice(0, 8),),
    ],
)
def test_large_results(index: tuple[Any, ...]) -> None:
    array = np.random.default_rng(0).normal(size=(1000, 1000)).astype(np.float32)
    file = stored(array)

    preview = read_preview(tensorkeep.open(file)["a"], index)

    assert preview.lines(100) == np.array2string(array[index], max_line_width=100).split("\n")
    assert file.n_read < array.nbytes / 8


def test_what_is_not_printed_is_not_read() -> None:
    array = np.zeros((64, 256, 256), np.float32)
    file = stored(array)

    preview = read_preview(tensorkeep.open(file)["a"], ())

    assert preview.is_cut
    assert preview.values.shape == (8, 8, 8)
    assert file.n_read < array.nbytes / 10


def test_lists_are_read_whole() -> None:
    array = np.arange(20_000).reshape(20, 1000)

    preview = read_preview(tensorkeep.open(stored(array))["a"], ([5, 3, 5],))

    np.testing.assert_array_equal(preview.values, array[[5, 3, 5]])
    assert preview.lines(80) == np.array2string(array[[5, 3, 5]], max_line_width=80).split("\n")


@pytest.mark.parametrize("index", [(0, 0, 0), (..., ...), (5000,), (slice(None), 5000), ([5000],)])
def test_an_index_that_does_not_fit(index: tuple[Any, ...]) -> None:
    with pytest.raises(SelectionError):
        read_preview(tensorkeep.open(stored(np.zeros((2000, 2000), np.int8)))["a"], index)

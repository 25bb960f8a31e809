"""Tensors as words: the unsigned integers in which they are compared and patched, whatever their dtype."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tensorkeep.arrays import any_tensor_to_write
from tensorkeep.deltas.encoding._differences import BLOCK_LENGTH, Words
from tensorkeep.dtypes import DType
from tensorkeep.tensors import LazyTensor, StoredTensor


def word_of(dtype: DType) -> np.dtype[Any]:
    """Return the words of a dtype: a number is one, a complex one two, and what is smaller shares bytes."""
    bits = dtype.bits // 2 if dtype.is_complex else dtype.bits
    return np.dtype(f"u{bits // 8}" if bits in {16, 32, 64} else "u1")


def n_words_of(lazy: LazyTensor) -> int:
    """Return how many words a tensor has."""
    described = lazy.tensor_to_write()
    return described.nbytes // word_of(described.dtype).itemsize


def blocks_of(lazy: LazyTensor) -> Iterator[Words]:
    """Yield the words of a tensor block by block."""
    n_words = n_words_of(lazy)
    for start in range(0, n_words, BLOCK_LENGTH):
        yield words_at(lazy, start, min(start + BLOCK_LENGTH, n_words))


def words_at(lazy: LazyTensor, start: int, stop: int) -> Words:
    """Return a run of words of a tensor, in memory of its own."""
    described = lazy.tensor_to_write()
    word = word_of(described.dtype)
    begin, end = start * word.itemsize, stop * word.itemsize
    if isinstance(described, StoredTensor):
        data = np.empty(end - begin, np.uint8)
        described.source.read_into([(described.span.start + begin, data.data)])
    else:
        data = _computed_bytes(lazy, described.dtype, begin, end)
    return data.view(word.newbyteorder("<")).astype(word, copy=False)


def _computed_bytes(lazy: LazyTensor, dtype: DType, begin: int, end: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return bytes of a tensor that is not in a file in this form, from the elements that fill them."""
    reader = lazy.reader.with_framework("numpy")
    group_nbytes = dtype.nbytes(dtype.n_per_group)
    first, last = begin // group_nbytes, -(-end // group_nbytes)
    run = reader.read_run(lazy.name, lazy.entry, first * dtype.n_per_group, last * dtype.n_per_group)
    data = bytearray().join(any_tensor_to_write(run, lazy.name).buffers())
    return np.frombuffer(data, np.uint8)[begin - first * group_nbytes :][: end - begin]

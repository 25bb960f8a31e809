"""Tensors as words: the unsigned integers in which they are compared and patched, whatever their dtype."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from tensorkeep.arrays import TensorToWrite, any_tensor_to_write
from tensorkeep.deltas.encoding._differences import BLOCK_LENGTH, Words
from tensorkeep.dtypes import DType
from tensorkeep.tensors import LazyTensor, StoredTensor

_Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]


def word_of(dtype: DType) -> np.dtype[Any]:
    """Return the words of a dtype: a number is one, a complex one two, and what is smaller shares bytes."""
    bits = dtype.bits // 2 if dtype.is_complex else dtype.bits
    return np.dtype(f"u{bits // 8}" if bits in {16, 32, 64} else "u1")


def n_words_of(lazy: LazyTensor) -> int:
    """Return how many words a tensor has."""
    described = lazy.tensor_to_write()
    return described.nbytes // word_of(described.dtype).itemsize


def blocks_of(tensor: TensorToWrite) -> Iterator[Words]:
    """Yield the words of a tensor block by block."""
    word = word_of(tensor.dtype)
    pieces = _stored_blocks(tensor, word) if isinstance(tensor, StoredTensor) else _blocks_of_stream(tensor, word)
    return (piece.view(word.newbyteorder("<")).astype(word, copy=False) for piece in pieces)


def _stored_blocks(tensor: StoredTensor, word: np.dtype[Any]) -> Iterator[_Bytes]:
    """Read a tensor of a file block by block, each in memory of its own."""
    step = BLOCK_LENGTH * word.itemsize
    for start in range(0, tensor.nbytes, step):
        data = np.empty(min(step, tensor.nbytes - start), np.uint8)
        tensor.source.read_into([(tensor.span.start + start, data.data)])
        yield data


def _blocks_of_stream(tensor: TensorToWrite, word: np.dtype[Any]) -> Iterator[_Bytes]:
    """Cut the bytes of a tensor into blocks; those within one buffer are not copied."""
    step = BLOCK_LENGTH * word.itemsize
    rest: _Bytes = np.empty(0, np.uint8)
    for buffer in tensor.buffers():
        data = np.frombuffer(buffer, np.uint8)
        if len(rest):
            missing = step - len(rest)
            rest, data = np.concatenate([rest, data[:missing]]), data[missing:]
            if len(rest) < step:
                continue
            yield rest
        end = len(data) // step * step
        yield from (data[start : start + step] for start in range(0, end, step))
        rest = data[end:].copy()
    if len(rest):
        yield rest


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


def _computed_bytes(lazy: LazyTensor, dtype: DType, begin: int, end: int) -> _Bytes:
    """Return bytes of a tensor that is not in a file in this form, from the elements that fill them."""
    reader = lazy.reader.with_framework("numpy")
    group_nbytes = dtype.nbytes(dtype.n_per_group)
    first, last = begin // group_nbytes, -(-end // group_nbytes)
    run = reader.read_run(lazy.name, lazy.entry, first * dtype.n_per_group, last * dtype.n_per_group)
    data = bytearray().join(any_tensor_to_write(run, lazy.name).buffers())
    return np.frombuffer(data, np.uint8)[begin - first * group_nbytes :][: end - begin]

"""jax.Arrays in several shards, described for writing without gathering them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorkeep.arrays._base import Extent, StreamedTensor, TensorToWrite
from tensorkeep.arrays._pieces import pieces
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import DType
from tensorkeep.errors import UnsupportedError
from tensorkeep.limits import PACK_NBYTES

_Box: TypeAlias = tuple[range, ...]
"""Positions along each dimension."""


def is_whole_here(array: Any) -> bool:
    """Say whether some device of this process has the whole array."""
    return bool(array.is_fully_replicated and array.sharding.addressable_devices)


def is_in_shards(array: Any, dtype: DType) -> bool:
    """Say whether an array is written shard by shard; it is gathered if its elements share bytes in the file."""
    return not (is_whole_here(array) or (dtype.is_packed and array.is_fully_addressable))


def sharded_to_write(array: Any, dtype: DType, name: str) -> TensorToWrite:
    """Describe an array; asking for bytes of shards in other processes is an error."""
    nbytes = dtype.nbytes(prod(array.shape))
    return StreamedTensor(dtype, array.shape, nbytes, lambda: _buffers(array, name), lambda: _extent(array, nbytes))


def _extent(array: Any, nbytes: int) -> Extent | None:
    """Return a place in memory that the array shares only with itself under other names."""
    strides = tuple(prod(array.shape[axis + 1 :]) for axis in range(array.ndim))
    return Extent(f"array {id(array)}", 0, nbytes, strides) if nbytes else None


def _buffers(array: Any, name: str) -> Iterator[Buffer]:
    """Give the array's bytes in C order: views of shards, or copies of bounded size."""
    if not array.is_fully_addressable:
        raise UnsupportedError(
            f"tensor `{name}` has no bytes of its own here",
            tensor=name,
            expected="a jax.Array whose shards are all on devices of this process",
            found="shards on devices of other processes",
            hint="tensorkeep.jax.save, called by all processes, saves the shards of each",
        )
    shards = {_box(shard.index, array.shape): shard.data for shard in array.addressable_shards}
    for index in pieces(array.shape, array.dtype.itemsize, PACK_NBYTES):
        yield (
            np.ascontiguousarray(_part(shards, _box(index, array.shape), array.dtype)).reshape(-1).view(np.uint8).data
        )


def _part(shards: dict[_Box, Any], wanted: _Box, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return a part of an array: a view of a shard that has all of it, else a copy."""
    block: npt.NDArray[Any] | None = None
    for box, data in shards.items():
        common = tuple(_common(one, other) for one, other in zip(box, wanted, strict=True))
        if not all(map(len, common)):
            continue
        part: npt.NDArray[Any] = np.asarray(data)[_within(common, box)]
        if common == wanted:
            return part
        if block is None:
            block = np.empty(tuple(map(len, wanted)), dtype)
        block[_within(common, wanted)] = part
    return np.empty(tuple(map(len, wanted)), dtype) if block is None else block


def _box(index: Sequence[int | slice], shape: tuple[int, ...]) -> _Box:
    """Return the positions that an index selects; dimensions that it leaves out are whole."""
    taken = [slice(each, each + 1) if isinstance(each, int) else each for each in index]
    taken += [slice(None)] * (len(shape) - len(taken))
    return tuple(range(extent)[each] for each, extent in zip(taken, shape, strict=True))


def _common(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))


def _within(box: _Box, outer: _Box) -> tuple[slice, ...]:
    """Return the index of a box within another one."""
    return tuple(
        slice(part.start - whole.start, part.stop - whole.start) for part, whole in zip(box, outer, strict=True)
    )

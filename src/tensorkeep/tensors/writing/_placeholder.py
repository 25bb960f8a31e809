"""A tensor that others will write: known by its dtype and shape only."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final

import msgspec

from tensorkeep.arrays import Extent, TensorToWrite
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import DType
from tensorkeep.tensors.indexing import c_strides

_ROOM_NBYTES: Final = 2**52
"""Between two places where planned tensors are thought to lie; more than any of them has."""


class PlaceholderTensor(msgspec.Struct, frozen=True, eq=False):
    """A leaf of a state that has no elements here.

    Attributes:
        dtype: Its row in the dtype table.
        shape: Elements along each dimension, as a header says them.
        library: The array library that it is of.
        memory: A number that is equal for those that are one tensor under several names; None for one that stands
            alone.
    """

    dtype: DType
    shape: tuple[int, ...]
    library: str
    memory: int | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that it will take."""
        return self.dtype.nbytes(prod(self.shape))

    def tensor_to_write(self) -> TensorToWrite:
        """Describe the tensor for a plan; its bytes cannot be had, unless it has none."""
        buffers = _no_buffers if self.nbytes else lambda: iter(())
        return TensorToWrite(self.dtype, self.shape, self.nbytes, self._extent, buffers)

    def _extent(self) -> Extent | None:
        if self.memory is None or not self.nbytes:
            return None
        start = self.memory * _ROOM_NBYTES
        return Extent("planned", start, start + self.nbytes, c_strides(self.shape))


def _no_buffers() -> Iterator[Buffer]:
    raise NotImplementedError("a planned tensor is written by others")

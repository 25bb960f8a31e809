"""A tensor that another process writes: its dtype and shape are known here, its elements are not."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final

import msgspec

from tensorkeep.arrays import Extent, StreamedTensor, TensorToWrite
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import DType
from tensorkeep.tensors.indexing import c_strides

_ROOM_NBYTES: Final = 2**52
"""Distance between the imaginary addresses of two placeholders; more than any tensor has."""


class PlaceholderTensor(msgspec.Struct, frozen=True, eq=False):
    """A tensor of a state whose elements are elsewhere.

    Attributes:
        dtype: Its row in the dtype table.
        shape: Elements along each dimension, as the header will say.
        library: Its array library.
        memory: A number, equal for several names of one tensor; None for a tensor with one name.
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
        """Describe the tensor for a plan; asking for its bytes is an error, unless it has none."""
        buffers = _no_buffers if self.nbytes else lambda: iter(())
        return StreamedTensor(self.dtype, self.shape, self.nbytes, buffers, self._extent)

    def _extent(self) -> Extent | None:
        if self.memory is None or not self.nbytes:
            return None
        start = self.memory * _ROOM_NBYTES
        return Extent("planned", start, start + self.nbytes, c_strides(self.shape))


def _no_buffers() -> Iterator[Buffer]:
    raise NotImplementedError("another process writes the bytes of this tensor")

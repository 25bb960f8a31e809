"""Which rank has which part of a tensor. Pure."""

from __future__ import annotations

from math import prod

import msgspec

from tensorkeep.dtypes import DType
from tensorkeep.tensors import Region


class PlannedTensor(msgspec.Struct, frozen=True):
    """A tensor, and which rank has which part of it.

    Attributes:
        dtype: Its row in the dtype table.
        shape: Elements along each dimension, as the library counts them.
        parts: Rank, place in the rank's list of parts, and region of the tensor; parts without elements are left out.
    """

    dtype: DType
    shape: tuple[int, ...]
    parts: list[tuple[int, int, Region]]

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor."""
        return self.dtype.nbytes(prod(self.stored_shape))

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Elements along each dimension, as a header counts them."""
        return stored_shape(self.dtype, self.shape)

    def stored_region(self, region: Region) -> Region:
        """Return a part as a header counts elements."""
        return Region(stored_shape(self.dtype, region.starts), stored_shape(self.dtype, region.stops))


class RankedTensors(msgspec.Struct, frozen=True):
    """The tensors that all ranks save together.

    Attributes:
        tensors: Name to tensor.
        n_ranks: How many ranks there are.
    """

    tensors: dict[str, PlannedTensor]
    n_ranks: int


def stored_shape(dtype: DType, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape as a header counts elements: libraries hold F4 in pairs."""
    return (*shape[:-1], 2 * shape[-1]) if dtype.is_packed and shape else shape

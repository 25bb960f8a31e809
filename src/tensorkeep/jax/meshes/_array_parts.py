"""A part of an array, with its bytes."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tensorkeep.arrays import TensorToWrite, pieces
from tensorkeep.dtypes import DType
from tensorkeep.limits import PACK_NBYTES
from tensorkeep.tensors import Region, narrowed


class ArrayPart(msgspec.Struct, frozen=True):
    """A part of an array that this process writes: `Part`.

    Attributes:
        dtype: Its row in the dtype table.
        shape: Elements of the whole array along each dimension.
        region: Which part of the array it is.
        content: Its bytes.
    """

    dtype: DType
    shape: tuple[int, ...]
    region: Region
    content: TensorToWrite

    def on_device(self) -> None:
        """Return None: the array's bytes are copied when they are read."""

    def blocks(self) -> Iterator[tuple[Region, memoryview]]:
        """Yield the part in C order: regions of the array and their bytes."""
        buffers = _Bytes(self.content)
        if buffers.are_one:
            yield self.region, buffers.take(self.content.nbytes)
            return
        for index in pieces(self.region.shape, self.dtype.itemsize, PACK_NBYTES):
            block = narrowed(self.region, index)
            yield block, buffers.take(self.dtype.nbytes(block.n_elements))


class _Bytes:
    """The bytes of a tensor, taken one after another: views of its buffers, or copies across two of them."""

    def __init__(self, content: TensorToWrite) -> None:
        self._buffers = (memoryview(buffer).cast("B") for buffer in content.buffers())
        self._left = next(self._buffers, memoryview(b""))
        self.are_one = len(self._left) == content.nbytes

    def take(self, nbytes: int) -> memoryview:
        taken: list[memoryview] = []
        missing = nbytes
        while missing:
            if not len(self._left):
                self._left = next(self._buffers)
            taken.append(self._left[:missing])
            self._left = self._left[len(taken[-1]) :]
            missing -= len(taken[-1])
        return taken[0] if len(taken) == 1 else memoryview(b"".join(taken))

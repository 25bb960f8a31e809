"""Parts of a tensor as tensors of their own, with dimensions in another order, added or left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import DenseArrays, StreamedTensor, TensorToWrite, adapter_for, pieces, tensor_to_write
from tensorkeep.arrays.elements import known_dtype, within_numpys_limits
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import DtypeError
from tensorkeep.limits import ARENA_NBYTES
from tensorkeep.tensors import LazyTensor, Region, Selection, parse_index, run_of
from tensorkeep.tensors.indexing import Axis
from tensorkeep.tensors.readers import RUN_LENGTH, Planned, TensorReader, UnstoredReader, run_of_blocks


class PartReader(UnstoredReader, frozen=True, eq=False):
    """Reads a part of another tensor.

    Attributes:
        whole: The other tensor.
        starts: The first position of the part along each of its dimensions.
        order: For each dimension of the part, which one of the other tensor it is; None for a new one of extent 1.
            Dimensions that are left out have extent 1 in the part.
        target: Framework and device of the tensors that are read; the other tensor's if None.
    """

    whole: LazyTensor
    starts: tuple[int, ...]
    order: tuple[int | None, ...]
    target: tuple[str, Any] | None = None

    @property
    def path(self) -> str | None:
        """The file of the other tensor, for messages."""
        return self.whole.reader.path

    @property
    def adapter(self) -> DenseArrays:
        """The array library."""
        return self.whole.reader.adapter if self.target is None else adapter_for(*self.target)

    def with_framework(self, framework: str, device: Any = "cpu") -> PartReader:
        """Return the same reader for another array library."""
        return msgspec.structs.replace(self, target=(framework, device))

    def read(self, name: str, entry: TensorEntry, selection: Selection) -> Any:
        """Read some of the part."""
        dtype = known_dtype(name, entry)
        with within_numpys_limits(name, entry.shape):
            elements = selection.apply(self._block(dtype, selection))
        return self.adapter.from_elements(elements, dtype)

    def plan(self, entry: TensorEntry, selection: Selection) -> Planned:  # noqa: ARG002 - a reader of one tensor
        """Return what reading some of the part would read."""
        return self.whole.reader.plan(self.whole.entry, self._in_whole(selection))

    def read_run(self, name: str, entry: TensorEntry, start: int, stop: int) -> Any:
        """Read a run of elements."""
        dtype = known_dtype(name, entry)
        elements = run_of_blocks(name, entry, start, stop, dtype.bits_name, lambda part: self._block(dtype, part))
        return self.adapter.from_elements(elements, dtype)

    def run_length(self, entry: TensorEntry) -> int:
        """Return how many elements each `read_run` should read: all of them, if they are in another order."""
        return RUN_LENGTH if self._is_in_order else max(prod(entry.shape), 1)

    def tensor_to_write(self, name: str, entry: TensorEntry, digest: bytes | None = None) -> TensorToWrite:  # noqa: ARG002
        """Describe the part for writing."""
        dtype = known_dtype(name, entry)
        return StreamedTensor(dtype, entry.shape, entry.nbytes, lambda: self._buffers(name, entry, dtype))

    def _buffers(self, name: str, entry: TensorEntry, dtype: DType) -> Iterator[Buffer]:
        reader = self.with_framework("numpy")
        limit = ARENA_NBYTES if self._is_in_order else max(entry.nbytes, 1)
        for index in pieces(entry.shape, np.dtype(dtype.bits_name).itemsize, limit):
            yield from tensor_to_write(reader.read(name, entry, parse_index(index, entry.shape)), name).buffers()

    @property
    def _is_in_order(self) -> bool:
        kept = [axis for axis in self.order if axis is not None]
        return kept == sorted(kept)

    def _in_whole(self, selection: Selection) -> Selection:
        """Return the block of a selection as a selection of the other tensor."""
        axes: list[Axis] = [range(start, start + 1) for start in self.starts]
        for positions, axis in zip(selection.axes, self.order, strict=True):
            if axis is not None:
                axes[axis] = _moved(positions, self.starts[axis])
        return Selection(self.whole.shape, tuple(axes), (slice(None),) * len(axes))

    def _block(self, dtype: DType, selection: Selection) -> npt.NDArray[Any]:
        """Return the block of a selection, of dtype `bits_name`."""
        reader = self.whole.reader.with_framework("numpy")
        read = np.asarray(reader.read(self.whole.name, self.whole.entry, self._in_whole(selection)))
        kept = [axis for axis in self.order if axis is not None]
        left_out = [axis for axis in range(len(self.starts)) if axis not in kept]
        block: npt.NDArray[Any] = read.view(dtype.bits_name).transpose(*left_out, *kept)
        return block.reshape(selection.block_shape)


def _moved(positions: Axis, by: int) -> Axis:
    if isinstance(positions, range):
        return range(positions.start + by, positions.stop + by, positions.step)
    return positions + by


def part_of(lazy: LazyTensor, region: Region, order: Sequence[int | None] | None = None) -> LazyTensor:
    """Return a part of a tensor; the same bytes of the same file, if they are in one piece.

    `order` has the dimension that each one of the result is, None for a new one; others have extent 1 in the part.
    """
    chosen = tuple(range(lazy.ndim) if order is None else order)
    shape = tuple(1 if axis is None else region.shape[axis] for axis in chosen)
    dtype = dtype_of(lazy)
    kept = [axis for axis in chosen if axis is not None]
    run = run_of(region, lazy.shape) if kept == sorted(kept) else None
    if run is not None and isinstance(lazy.reader, TensorReader) and not run.start * dtype.bits % 8:
        start = lazy.entry.data_offsets[0] + run.start * dtype.bits // 8
        entry = TensorEntry(dtype.name, shape, (start, start + dtype.nbytes(prod(shape))))
        return LazyTensor(lazy.name, entry, lazy.reader, library=lazy.library)
    if dtype.is_packed:
        raise DtypeError(
            f"a part of tensor `{lazy.name}` cannot be taken",
            tensor=lazy.name,
            expected="a dtype whose elements are whole bytes",
            found=dtype.name,
        )
    entry = TensorEntry(dtype.name, shape, (0, dtype.nbytes(prod(shape))))
    return LazyTensor(lazy.name, entry, PartReader(lazy, region.starts, chosen), library=lazy.library)


def dtype_of(lazy: LazyTensor) -> DType:
    """Return the dtype of what is read, also after a cast."""
    return lazy.reader.cast_to or known_dtype(lazy.name, lazy.entry)

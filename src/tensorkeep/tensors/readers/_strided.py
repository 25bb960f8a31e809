"""A reader of strided views: transposed, expanded, with gaps or overlaps, in either byte order.

Elements are gathered when they are read, in C order and the machine's byte order, and then conjugated and negated
where torch had put that off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import DenseArrays, Extent, StreamedTensor, TensorToWrite, pieces, tensor_to_write
from tensorkeep.arrays.elements import known_dtype, resolve, within_numpys_limits
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import ALL_BY_NAME, BY_NAME, DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import DtypeError, LimitError, UnsupportedError
from tensorkeep.limits import ARENA_NBYTES, MAX_EXPANDED_NBYTES, PACK_NBYTES
from tensorkeep.tensors.indexing import Selection, c_strides, parse_index
from tensorkeep.tensors.readers._base import Planned, stored_extent, stored_pieces, writable_dtype
from tensorkeep.tensors.readers._blocks import read_block, spans_of_block, take_block
from tensorkeep.tensors.readers._contiguous import TensorReader
from tensorkeep.tensors.readers._unstored import UnstoredReader, run_of_blocks
from tensorkeep.transport import ByteRange

Array = npt.NDArray[Any]


class Layout(msgspec.Struct, frozen=True):
    """Where a tensor's elements are in a source; the caller has checked that all are inside it.

    Attributes:
        start: Byte of the source at which the first element begins.
        strides: For each dimension, elements from one entry to the next, none negative; 0 if it is expanded.
        is_big_endian: Whether elements have their highest byte first.
        is_conj: Whether the tensor is the complex conjugate of what is in the source.
        is_neg: Whether it is the negative of what is in the source.
    """

    start: int
    strides: tuple[int, ...]
    is_big_endian: bool = False
    is_conj: bool = False
    is_neg: bool = False

    def is_plain(self, dtype: DType, shape: tuple[int, ...]) -> bool:
        """Say whether the elements are as in a safetensors file, so that a `TensorReader` can read them."""
        is_changed = self.is_neg or (self.is_conj and dtype.is_complex) or (self.is_big_endian and dtype.bits > 8)
        in_c_order = zip(shape, self.strides, c_strides(shape), strict=True)
        return (
            dtype.name in BY_NAME
            and not is_changed
            and (0 in shape or all(extent == 1 or stride == plain for extent, stride, plain in in_c_order))
        )


class StridedReader(UnstoredReader, frozen=True, eq=True):
    """Gathers a view from the source of another reader.

    Entries have the dtype, which can be C32 or C128, the shape, and (0, bytes of all elements) as their range.

    Attributes:
        stored: The reader of the source, whose mapping all views share.
        layout: Where the elements are.
    """

    stored: TensorReader
    layout: Layout

    @property
    def path(self) -> str:
        """The file, for messages."""
        return self.stored.path

    @property
    def adapter(self) -> DenseArrays:
        """The array library."""
        return self.stored.adapter

    def with_framework(self, framework: str, device: Any = "cpu") -> StridedReader:
        """Return the same reader for another array library."""
        return StridedReader(self.stored.with_framework(framework, device), self.layout)

    def read(self, name: str, entry: TensorEntry, selection: Selection) -> Any:
        """Read a part of a tensor, and little more of the source than that."""
        dtype = self._dtype(name, entry)
        self._refuse_expanded(name, dtype, selection)
        with within_numpys_limits(name, entry.shape):
            elements = selection.apply(self._block(dtype, selection))
        return self.adapter.from_elements(np.require(elements, requirements="W"), dtype)

    def plan(self, entry: TensorEntry, selection: Selection) -> Planned:
        """Return what reading a part of a tensor would read."""
        dtype = self._dtype("", entry)
        source = self.stored.source
        if not selection.n_elements:
            return source, []
        once, strides = self._once(selection)
        ordered, _, in_order = _in_order_of_source(once, strides)
        return source, spans_of_block(source, self.layout.start, dtype, ordered, in_order)

    def read_run(self, name: str, entry: TensorEntry, start: int, stop: int) -> Any:
        """Read a run of elements; refuse one of a tensor that would be streamed for ever."""
        dtype = self._dtype(name, entry)
        self._refuse_expanded(name, dtype, parse_index(..., entry.shape))
        elements = run_of_blocks(name, entry, start, stop, dtype.bits_name, lambda part: self._block(dtype, part))
        return self.adapter.from_elements(elements, dtype)

    def run_length(self, entry: TensorEntry) -> int:
        """Return how many elements each `read_run` should read."""
        return self._piece_nbytes(entry) // ALL_BY_NAME[entry.dtype].itemsize

    def tensor_to_write(self, name: str, entry: TensorEntry, digest: bytes | None = None) -> TensorToWrite:  # noqa: ARG002
        """Describe a tensor for writing; it is gathered piece by piece."""
        dtype = writable_dtype(name, self._dtype(name, entry))
        self._refuse_expanded(name, dtype, parse_index(..., entry.shape))
        source = self.stored.source
        return StreamedTensor(
            dtype,
            entry.shape,
            entry.nbytes,
            lambda: self._buffers(name, entry),
            lambda: self._extent(dtype, entry),
            lambda start, stop: stored_pieces(source, ByteRange(start, stop)),
        )

    def _extent(self, dtype: DType, entry: TensorEntry) -> Extent | None:
        layout = self.layout
        if not entry.nbytes or (layout.is_big_endian and dtype.bits > 8):
            return None
        reach = 1 + sum((n - 1) * stride for n, stride in zip(entry.shape, layout.strides, strict=True))
        stop = layout.start + reach * dtype.itemsize
        return stored_extent(
            self.stored.source,
            layout.start,
            stop,
            layout.strides,
            is_conj=layout.is_conj and dtype.is_complex,
            is_neg=layout.is_neg,
        )

    def _buffers(self, name: str, entry: TensorEntry) -> Iterator[Buffer]:
        reader = self.with_framework("numpy")
        for index in pieces(entry.shape, ALL_BY_NAME[entry.dtype].itemsize, self._piece_nbytes(entry)):
            yield from tensor_to_write(reader.read(name, entry, parse_index(index, entry.shape)), name).buffers()

    def _piece_nbytes(self, entry: TensorEntry) -> int:
        """Return how many bytes to gather at once of a tensor that is streamed."""
        # Each piece of a transposed tensor touches all of the tensor's bytes, so its pieces are few and large.
        strides = [
            stride for extent, stride in zip(entry.shape, self.layout.strides, strict=True) if extent > 1 and stride
        ]
        return PACK_NBYTES if strides == sorted(strides, reverse=True) else ARENA_NBYTES

    def _dtype(self, name: str, entry: TensorEntry) -> DType:
        dtype = ALL_BY_NAME.get(entry.dtype) or known_dtype(name, entry)
        if dtype.is_packed:
            raise UnsupportedError(
                f"tensor `{name}` is a strided view of packed elements", tensor=name, found=dtype.name
            )
        if self.layout.is_neg and not _has_negatives(dtype):
            raise DtypeError(
                f"tensor `{name}` is negated, which its dtype does not support", tensor=name, found=dtype.name
            )
        return dtype

    def _refuse_expanded(self, name: str, dtype: DType, selection: Selection) -> None:
        nbytes = dtype.nbytes(selection.n_elements)
        if nbytes <= MAX_EXPANDED_NBYTES:
            return
        reach = 1 + sum(
            int(axis[-1] - axis[0]) * stride for axis, stride in zip(selection.axes, self.layout.strides, strict=True)
        )
        if nbytes > dtype.nbytes(reach):
            raise LimitError(
                f"tensor `{name}` is an expanded view, too large to be read as a whole",
                tensor=name,
                expected=f"{MAX_EXPANDED_NBYTES:,} bytes or fewer",
                found=f"{nbytes:,} bytes, from {dtype.nbytes(reach):,} in the file",
                hint="Read a slice of it",
            )

    def _block(self, dtype: DType, selection: Selection) -> Array:
        """Return the block, of dtype `bits_name`; read-only if it repeats elements."""
        if not selection.n_elements:
            return np.empty(selection.block_shape, dtype.bits_name)
        layout = self.layout
        once, strides = self._once(selection)
        mapping = self.stored.mapping()
        if mapping is None:
            block = self._read(dtype, once, strides)
        else:
            buffer, first = mapping
            steps = [dtype.itemsize * stride for stride in strides]
            block = take_block(np.ndarray(once.shape, dtype.bits_name, buffer, layout.start - first, steps), once)
        resolve(
            block,
            dtype,
            is_conj=layout.is_conj,
            is_neg=layout.is_neg,
            swap=dtype.bits > 8 and layout.is_big_endian == np.little_endian,
        )
        return block if block.shape == selection.block_shape else np.broadcast_to(block, selection.block_shape)

    def _once(self, selection: Selection) -> tuple[Selection, tuple[int, ...]]:
        """Return a selection with each repeated element once, and the strides of its axes."""
        strides = tuple(
            stride if extent > 1 else 0 for extent, stride in zip(selection.shape, self.layout.strides, strict=True)
        )
        shape = tuple(extent if stride else 1 for extent, stride in zip(selection.shape, strides, strict=True))
        axes = tuple(axis if stride else range(1) for axis, stride in zip(selection.axes, strides, strict=True))
        return Selection(shape, axes, ()), strides

    def _read(self, dtype: DType, selection: Selection, strides: Sequence[int]) -> Array:
        """Read a block, its axes in the order of the source."""
        ordered, order, strides = _in_order_of_source(selection, strides)
        block = np.empty(selection.block_shape, dtype.bits_name)
        read_block(self.stored.source, self.layout.start, dtype, ordered, strides, block.transpose(order))
        return block


def _in_order_of_source(selection: Selection, strides: Sequence[int]) -> tuple[Selection, list[int], Sequence[int]]:
    """Return a selection with its axes in the order of the source, that order, and their strides."""
    order = sorted(range(len(strides)), key=lambda axis: -strides[axis])
    shape = tuple(selection.shape[axis] for axis in order)
    ordered = Selection(shape, tuple(selection.axes[axis] for axis in order), ())
    return ordered, order, [strides[axis] for axis in order]


def _has_negatives(dtype: DType) -> bool:
    """Say whether torch negates numbers of a dtype: not booleans, nor floats of one byte."""
    return dtype.name != "BOOL" and not (dtype.is_float and dtype.bits == 8)

"""A reader of a tensor in chunks: boxes of one shape, each stored on its own and mostly compressed.

A read touches only the chunks that hold some of its elements. They are fetched many at a time and unpacked in
parallel, straight into the result. Elements of chunks that are not stored are the fill value.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from itertools import product
from math import prod
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import (
    DenseArrays,
    DeviceMemory,
    StreamedTensor,
    TensorToWrite,
    adapter_for,
    pieces,
    tensor_to_write,
)
from tensorkeep.arrays.elements import known_dtype, resolve, within_numpys_limits
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import ALL_BY_NAME, DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import LimitError
from tensorkeep.formats import Chunks, StoredChunk, StreamedChunks
from tensorkeep.limits import (
    COPIED_BY_ONE_NBYTES,
    COPIED_PIECE_NBYTES,
    GAP_NBYTES,
    MAX_EXPANDED_NBYTES,
    READ_NBYTES,
)
from tensorkeep.parallel import parallel_for_each
from tensorkeep.tensors.indexing import Axis, Region, Selection, parse_index, run_of
from tensorkeep.tensors.readers._base import RUN_LENGTH, Planned, writable_dtype
from tensorkeep.tensors.readers._blocks import put_block
from tensorkeep.tensors.readers._unstored import run_of_blocks
from tensorkeep.tensors.to_device import Block, buffer_nbytes, gathering_device

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

_MAX_THREADS = 8
"""Batches of chunks that are read and unpacked at once."""

_STREAMED_NBYTES = 2**25
"""Bytes of a chunk from which on it is unpacked piece by piece: in memory it is then once, not twice."""


class _Part(msgspec.Struct, frozen=True, eq=False):
    """The part of a selection that one chunk holds: its elements, and their place in the block."""

    chunk: StoredChunk
    selection: Selection
    into: tuple[slice, ...]


class ChunkedReader:
    """Reads one tensor in chunks."""

    cast_to: DType | None = None
    """None: tensors have the dtype that they are stored in."""

    source = None
    """None: as a whole, its bytes are nowhere."""

    def __init__(self, chunks: Chunks, framework: str, device: Any = "cpu") -> None:
        self._chunks = chunks
        self._target = (framework, device)

    def __reduce__(self) -> tuple[Any, ...]:
        return ChunkedReader, (self._chunks, *self._target)

    def with_framework(self, framework: str, device: Any = "cpu") -> ChunkedReader:
        """Return the same reader for another array library."""
        return ChunkedReader(self._chunks, framework, device)

    @property
    def path(self) -> str:
        """The file, for messages."""
        return self._chunks.source.name

    @cached_property
    def adapter(self) -> DenseArrays:
        """The array library, imported on first use."""
        return adapter_for(*self._target)

    def span_of(self, entry: TensorEntry) -> None:
        """Return None: the elements are in no single range."""

    def read(self, name: str, entry: TensorEntry, selection: Selection) -> Any:
        """Read a part, from the chunks that hold some of it."""
        dtype = _dtype_of(name, entry)
        with within_numpys_limits(name, entry.shape):
            elements = selection.apply(self._block(name, dtype, selection))
        return self.adapter.from_elements(elements, dtype)

    def read_run(self, name: str, entry: TensorEntry, start: int, stop: int) -> Any:
        """Read a run of elements; refuse one of a tensor that would be streamed for ever."""
        dtype = _dtype_of(name, entry)
        self._refuse_empty(name, dtype, entry.n_elements)
        elements = run_of_blocks(
            name, entry, start, stop, dtype.bits_name, lambda part: self._block(name, dtype, part)
        )
        return self.adapter.from_elements(elements, dtype)

    def run_length(self, entry: TensorEntry) -> int:
        """Return how many elements one `read_run` should take: whole rows of chunks, each unpacked once."""
        band = self._chunks.shape[0] * prod(entry.shape[1:]) if entry.n_elements and entry.shape else 1
        return band * -(-RUN_LENGTH // band)

    def plan(self, entry: TensorEntry, selection: Selection) -> Planned:  # noqa: ARG002 - a reader of one tensor
        """Return what reading a part would read, once the index of the chunks is read."""
        parts = list(self._parts(selection))
        return self._chunks.source, [[part.chunk.span for part in parts]] if parts else []

    def load(self, entries: Mapping[str, TensorEntry]) -> dict[str, Any]:
        """Read the whole tensor."""
        return {name: self.read(name, entry, parse_index(..., entry.shape)) for name, entry in entries.items()}

    def view(self, name: str, entry: TensorEntry) -> None:
        """Return None: the elements are nowhere as a whole."""

    def place(self, tensor: Any) -> Any:
        """Move a tensor to the device."""
        return self.adapter.place({"": tensor})[""]

    def tensor_to_write(self, name: str, entry: TensorEntry, digest: bytes | None = None) -> TensorToWrite:  # noqa: ARG002
        """Describe the tensor for writing; it is unpacked a row of chunks at a time."""
        dtype = writable_dtype(name, _dtype_of(name, entry))
        self._refuse_empty(name, dtype, entry.n_elements)
        return StreamedTensor(dtype, entry.shape, entry.nbytes, lambda: self._buffers(name, entry))

    def _buffers(self, name: str, entry: TensorEntry) -> Iterator[Buffer]:
        reader = self.with_framework("numpy")
        itemsize = ALL_BY_NAME[entry.dtype].itemsize
        for index in pieces(entry.shape, itemsize, self.run_length(entry) * itemsize):
            yield from tensor_to_write(reader.read(name, entry, parse_index(index, entry.shape)), name).buffers()

    def staged_block(self, name: str, entry: TensorEntry, selection: Selection) -> tuple[DeviceMemory, Block] | None:
        """Return the device that can copy what is unpacked, and how to unpack it; None to read it in another way.

        Chunks side by side are unpacked together, so that each is unpacked once; they must fit in a host buffer.
        """
        dtype = _dtype_of(name, entry)
        device = gathering_device(self.adapter, dtype)
        if device is None or not (selection.keeps_order and selection.n_elements and entry.shape):
            return None
        rows, n_rows = selection.axes[0], self._chunks.shape[0]
        is_whole_chunks = isinstance(rows, range) and rows.step == 1 and not rows.start % n_rows
        if not is_whole_chunks or dtype.nbytes(n_rows * prod(selection.block_shape[1:])) > buffer_nbytes():
            return None
        self._refuse_empty(name, dtype, selection.n_elements)

        def read(index: tuple[int | slice, ...], into: memoryview) -> None:
            part = selection.part(index)
            block = np.frombuffer(into, dtype.bits_name).reshape(part.block_shape)
            parts = list(self._parts(part))
            if _n_elements(parts) < part.n_elements:
                block[...] = self._fill_of(dtype, part)
            self._unpack(block, dtype, parts, n_threads=1)  # other threads unpack other rows

        return device, Block(self._chunks.source.name, dtype, selection.block_shape, read, n_rows)

    def _block(self, name: str, dtype: DType, selection: Selection) -> Array:
        """Return the block of a selection, of dtype `bits_name`."""
        if not selection.n_elements:
            return np.empty(selection.block_shape, dtype.bits_name)
        self._refuse_empty(name, dtype, selection.n_elements)
        parts = list(self._parts(selection))
        block = self._empty_block(dtype, selection, is_full=_n_elements(parts) == selection.n_elements)
        is_worth_threads = block.nbytes >= COPIED_BY_ONE_NBYTES
        self._unpack(block, dtype, parts, min(_MAX_THREADS, os.cpu_count() or 1) if is_worth_threads else 1)
        return block

    def _unpack(self, block: Array, dtype: DType, parts: list[_Part], n_threads: int) -> None:
        """Put what chunks hold into its places in a block."""
        parallel_for_each(list(self._batches(parts)), partial(self._put, block), n_threads=n_threads)
        resolve(block, dtype, swap=dtype.bits > 8 and self._chunks.is_big_endian == np.little_endian)

    def _empty_block(self, dtype: DType, selection: Selection, *, is_full: bool) -> Array:
        """Return a block for a selection, with the fill value unless chunks hold all of it."""
        if not is_full and not self._chunks.fill:
            return np.zeros(selection.block_shape, dtype.bits_name)  # takes no memory until it is touched
        block = np.empty(selection.block_shape, dtype.bits_name)
        if not is_full:
            block[...] = self._fill_of(dtype, selection)
        return block

    def _fill_of(self, dtype: DType, selection: Selection) -> Any:
        """Return what is where no chunk is stored."""
        chunks = self._chunks
        if not chunks.fill:
            return 0
        fill = np.frombuffer(chunks.fill, dtype.bits_name)
        if not chunks.fill_shape:
            return fill[0]
        axes = selection.axes[len(selection.axes) - len(chunks.fill_shape) :]
        return fill.reshape(chunks.fill_shape)[np.ix_(*axes)]

    def _batches(self, parts: list[_Part]) -> Iterator[list[_Part]]:
        """Group chunks that are read at once: so many as stay in a core's cache, or as are worth requests."""
        is_near = self._is_near
        batch: list[_Part] = []
        nbytes = 0
        for part in parts:
            batch.append(part)
            nbytes += len(part.chunk.span)
            if nbytes >= (COPIED_PIECE_NBYTES if is_near else READ_NBYTES):
                yield batch
                batch, nbytes = [], 0
        if batch:
            yield batch

    def _put(self, block: Array, parts: list[_Part]) -> None:
        """Read some chunks into their place, or unpack them there if they cannot be read as they are."""
        reads: list[tuple[int, memoryview]] = []
        packed: list[tuple[_Part, Bytes]] = []
        for part in parts:
            place = _at(block, part.into)
            run = _run_of(part.selection) if place.flags.c_contiguous else None
            if run is not None and self._is_unpacked_into(part, place):
                continue
            if run is None or not part.chunk.is_plain:
                data = np.empty(len(part.chunk.span), np.uint8)
                reads.append((part.chunk.span.start, data.data))
                packed.append((part, data))
            else:
                reads.append((part.chunk.span.start + run * block.itemsize, place.reshape(-1).view(np.uint8).data))
        self._chunks.source.read_into(reads)
        reads.clear()
        while packed:
            part, data = packed.pop()
            elements = data if part.chunk.is_plain else self._chunks.unpack(part.chunk, data.data)
            del data  # a chunk may be a whole tensor, which is then in memory twice, not three times
            whole = np.frombuffer(elements, block.dtype).reshape(self._chunks.shape)
            put_block(_at(block, part.into), whole, part.selection)

    def _is_unpacked_into(self, part: _Part, place: Array) -> bool:
        """Unpack a large chunk in a file that is near straight into the place of its elements, if it can be."""
        chunks = self._chunks
        if part.chunk.is_plain or place.nbytes < _STREAMED_NBYTES or place.size != prod(chunks.shape):
            return False
        if not self._is_near or not isinstance(chunks, StreamedChunks):
            return False
        return chunks.unpack_into(part.chunk, place.reshape(-1).view(np.uint8).data)

    @property
    def _is_near(self) -> bool:
        return self._chunks.source.gap_nbytes == GAP_NBYTES

    def _parts(self, selection: Selection) -> Iterator[_Part]:
        """Give, for each stored chunk, the part of a selection that it holds."""
        shape = self._chunks.shape
        stored = self._chunks.stored()
        axes = list(zip(selection.axes, shape, strict=True))
        touched = [_chunks_along(axis, step) for axis, step in axes]
        # whichever are fewer: the chunks of an axis that was hardly written may be too many to go through
        places = product(*touched) if prod(map(len, touched)) <= len(stored) else sorted(stored)
        for place in places:
            chunk = stored.get(place)
            if chunk is None:
                continue
            cuts = [
                (bisect_left(axis, at * step), bisect_left(axis, (at + 1) * step))
                for at, (axis, step) in zip(place, axes, strict=True)
            ]
            if all(begin < end for begin, end in cuts):
                inner = tuple(
                    _moved(axis[begin:end], -at * step)
                    for at, (axis, step), (begin, end) in zip(place, axes, cuts, strict=True)
                )
                yield _Part(chunk, Selection(shape, inner, ()), tuple(slice(*cut) for cut in cuts))

    def _refuse_empty(self, name: str, dtype: DType, n_elements: int) -> None:
        """Refuse to make much more of a tensor than its file holds."""
        nbytes = dtype.nbytes(n_elements)
        if nbytes <= MAX_EXPANDED_NBYTES:
            return
        n_stored = len(self._chunks.stored()) * prod(self._chunks.shape)
        if nbytes > MAX_EXPANDED_NBYTES + dtype.nbytes(n_stored):
            raise LimitError(
                f"most of tensor `{name}` was never written, and it is too large to be read as a whole",
                tensor=name,
                expected=f"at most {MAX_EXPANDED_NBYTES:,} bytes that are not in the file",
                found=f"{nbytes:,} bytes, {dtype.nbytes(n_stored):,} in the file",
                hint="Read a slice of it",
            )


def _n_elements(parts: list[_Part]) -> int:
    return sum(part.selection.n_elements for part in parts)


def _chunks_along(axis: Axis, step: int) -> range:
    """Return the chunks along an axis from its first position to its last."""
    return range(int(axis[0]) // step, int(axis[-1]) // step + 1) if len(axis) else range(0)


def _run_of(selection: Selection) -> int | None:
    """Return the first element of a selection in its chunk, if it is a run of the chunk's elements; else None."""
    if not all(isinstance(axis, range) and axis.step == 1 for axis in selection.axes):
        return None
    region = Region(
        tuple(axis.start for axis in selection.axes if isinstance(axis, range)),
        tuple(axis.stop for axis in selection.axes if isinstance(axis, range)),
    )
    run = run_of(region, selection.shape)
    return None if run is None else run.start


def _at(block: Array, place: tuple[slice, ...]) -> Array:
    """Return a part of a block, as an array even if it has no dimensions."""
    index: Any = (*place, ...)
    part: Array = block[index]
    return part


def _moved(axis: Axis, by: int) -> Axis:
    return range(axis.start + by, axis.stop + by, axis.step) if isinstance(axis, range) else axis + by


def _dtype_of(name: str, entry: TensorEntry) -> DType:
    return ALL_BY_NAME.get(entry.dtype) or known_dtype(name, entry)

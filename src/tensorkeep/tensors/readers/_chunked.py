"""A reader of a tensor in chunks: boxes of one shape, each stored on its own and mostly compressed.

A read touches only the chunks that hold some of its elements. They are fetched many at a time and unpacked in
parallel, straight into the result. Elements of chunks that are not stored are the fill value.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from itertools import product
from math import prod
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import DenseArrays, StreamedTensor, TensorToWrite, adapter_for, pieces, tensor_to_write
from tensorkeep.arrays.elements import known_dtype, resolve, within_numpys_limits
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import ALL_BY_NAME, DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import LimitError
from tensorkeep.formats import Chunks, StoredChunk
from tensorkeep.limits import ARENA_NBYTES, COPIED_BY_ONE_NBYTES, MAX_EXPANDED_NBYTES, PACK_NBYTES
from tensorkeep.parallel import parallel_for_each
from tensorkeep.tensors.indexing import Axis, Region, Selection, cover_run, parse_index, run_of
from tensorkeep.tensors.readers._base import RUN_LENGTH, Planned, writable_dtype
from tensorkeep.tensors.readers._blocks import put_block

Array = npt.NDArray[Any]

_MAX_THREADS = 8
"""Chunks that are unpacked at once."""


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
        """Read a run of elements."""
        dtype = _dtype_of(name, entry)
        elements = np.empty(stop - start, dtype.bits_name)
        done = 0
        with within_numpys_limits(name, entry.shape):
            for index, first, last in cover_run(start, stop, entry.shape):
                selection = parse_index(index, entry.shape)
                block = selection.apply(self._block(name, dtype, selection)).reshape(-1)
                elements[done : done + last - first] = block[first:last]
                done += last - first
        return self.adapter.from_elements(elements, dtype)

    def run_length(self, entry: TensorEntry) -> int:
        """Return how many elements one `read_run` should take: whole rows of chunks, each unpacked once."""
        return max(RUN_LENGTH, self._band_length(entry))

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
        nbytes = max(PACK_NBYTES, self._band_length(entry) * itemsize)
        for index in pieces(entry.shape, itemsize, nbytes):
            yield from tensor_to_write(reader.read(name, entry, parse_index(index, entry.shape)), name).buffers()

    def _band_length(self, entry: TensorEntry) -> int:
        """Return how many elements are in the chunks that hold the first one of each row."""
        return self._chunks.shape[0] * prod(entry.shape[1:]) if entry.shape else 1

    def _block(self, name: str, dtype: DType, selection: Selection) -> Array:
        """Return the block of a selection, of dtype `bits_name`."""
        if not selection.n_elements:
            return np.empty(selection.block_shape, dtype.bits_name)
        self._refuse_empty(name, dtype, selection.n_elements)
        block = np.empty(selection.block_shape, dtype.bits_name)
        parts = list(self._parts(selection))
        if sum(part.selection.n_elements for part in parts) < block.size:
            block[...] = self._fill(dtype, selection)
        batch: list[_Part] = []
        nbytes = 0
        for part in parts:
            batch.append(part)
            nbytes += len(part.chunk.span)
            if nbytes >= ARENA_NBYTES:
                self._put(batch, block)
                batch, nbytes = [], 0
        self._put(batch, block)
        resolve(block, dtype, swap=dtype.bits > 8 and self._chunks.is_big_endian == np.little_endian)
        return block

    def _fill(self, dtype: DType, selection: Selection) -> Array:
        """Return what the elements are that are not stored; it may be an array for the last dimensions."""
        chunks = self._chunks
        fill = np.frombuffer(chunks.fill or bytes(dtype.itemsize), dtype.bits_name)
        if len(fill) == 1:
            return fill[:1].reshape(())
        axes = selection.axes[len(selection.axes) - len(chunks.fill_shape) :]
        return fill.reshape(chunks.fill_shape)[np.ix_(*axes)]

    def _put(self, parts: list[_Part], block: Array) -> None:
        """Read some chunks at once, those that need no unpacking into their place, and then unpack the others."""
        reads: list[tuple[int, memoryview]] = []
        packed: list[tuple[_Part, Buffer]] = []
        for part in parts:
            place = _at(block, part.into)
            run = _run_of(part.selection) if part.chunk.is_plain and place.flags.c_contiguous else None
            if run is None:
                data = bytearray(len(part.chunk.span))
                reads.append((part.chunk.span.start, memoryview(data)))
                packed.append((part, data))
            else:
                reads.append((part.chunk.span.start + run * block.itemsize, place.reshape(-1).view(np.uint8).data))
        self._chunks.source.read_into(reads)
        is_worth_threads = len(packed) > 1 and block.nbytes >= COPIED_BY_ONE_NBYTES
        parallel_for_each(packed, partial(self._unpack, block), n_threads=_MAX_THREADS if is_worth_threads else 1)

    def _unpack(self, block: Array, packed: tuple[_Part, Buffer]) -> None:
        part, data = packed
        elements = data if part.chunk.is_plain else self._chunks.unpack(part.chunk, data)
        whole = np.frombuffer(elements, block.dtype).reshape(self._chunks.shape)
        put_block(_at(block, part.into), whole, part.selection)

    def _parts(self, selection: Selection) -> Iterator[_Part]:
        """Give, for each stored chunk, the part of a selection that it holds."""
        shape = self._chunks.shape
        stored = self._chunks.stored()
        axes = [dict(_cuts(axis, step)) for axis, step in zip(selection.axes, shape, strict=True)]
        places = product(*axes) if prod(map(len, axes)) <= len(stored) else sorted(stored)
        for place in places:
            chunk = stored.get(place)
            if chunk is not None and all(at in axis for at, axis in zip(place, axes, strict=True)):
                cuts = [axis[at] for at, axis in zip(place, axes, strict=True)]
                inner = tuple(
                    _moved(axis[begin:end], -at * step)
                    for axis, (begin, end), at, step in zip(selection.axes, cuts, place, shape, strict=True)
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


def _cuts(axis: Axis, step: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Give, for each chunk along an axis that holds some of its positions, the range of these positions."""
    begin = 0
    while begin < len(axis):
        at = int(axis[begin]) // step
        end = bisect_left(axis, (at + 1) * step, begin)
        yield at, (begin, end)
        begin = end


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

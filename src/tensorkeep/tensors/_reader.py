"""Selections and whole files, read into tensors of one library.

A part of a mapped file is an array view of the mapping, indexed by NumPy and copied out: nothing but the touched
pages is read. A part of any other source is read box by box. Whole files are handed out over a mapping of their own,
without a copy, or read into memory that they own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import ArrayAdapter, adapter_for
from tensorkeep.arrays.elements import elements_of, known_dtype, unpack, within_numpys_limits
from tensorkeep.buffers import Buffer
from tensorkeep.collector import PausedCollector
from tensorkeep.dtypes import DType
from tensorkeep.entries import TensorEntry
from tensorkeep.limits import ARENA_NBYTES
from tensorkeep.tensors._boxes import Box, cut_into_boxes
from tensorkeep.tensors._selection import Selection
from tensorkeep.transport import ByteRange, ByteSource

__all__ = ["TensorReader"]

Array = npt.NDArray[Any]


class TensorReader:
    """Reads tensors out of one source.

    Usable from several threads, after a fork, and (where its source is a file) pickled.

    Args:
        source: Where the bytes are.
        data_start: Byte of the source at which offset 0 of the entries lies.
        framework: The array library, one of `tensorkeep.arrays.FRAMEWORKS`.
        device: Where tensors go.
    """

    def __init__(self, source: ByteSource, data_start: int, framework: str, device: Any = "cpu") -> None:
        self.source = source
        self._data_start = data_start
        self._framework = framework
        self._device = device
        self._adapter: ArrayAdapter | None = None
        self._mapping: Buffer | None = None
        self._mapping_lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what it was made of."""
        return TensorReader, (self.source, self._data_start, self._framework, self._device)

    def with_framework(self, framework: str) -> TensorReader:
        """Return a reader of the same source that gives the CPU tensors of another array library.

        Args:
            framework: One of `tensorkeep.arrays.FRAMEWORKS`.
        """
        return TensorReader(self.source, self._data_start, framework)

    @property
    def adapter(self) -> ArrayAdapter:
        """The array library, imported when the first tensor is made."""
        if self._adapter is None:
            self._adapter = adapter_for(self._framework, self._device)
        return self._adapter

    def close(self) -> None:
        """Let go of the source."""
        self._mapping = None
        self.source.close()

    def read(self, name: str, entry: TensorEntry, selection: Selection) -> Any:
        """Read a part of a tensor.

        Args:
            name: The tensor's name, for messages.
            entry: The tensor.
            selection: The part.

        Returns:
            A tensor that owns its memory.

        Raises:
            DtypeError: If the dtype is unknown here or to the library.
            TransportError: If the bytes cannot be read.
        """
        dtype = known_dtype(name, entry)
        mapping = None if dtype.is_packed else self._shared_mapping()
        with within_numpys_limits(name, entry.shape):
            if mapping is None:
                block = self._read_boxes(entry, dtype, selection)
            else:
                whole = elements_of(name, entry, mapping, self._data_start + entry.data_offsets[0])
                block = _take(whole, selection)
            elements = selection.apply(block)
        return self.adapter.from_elements(elements, dtype)

    def view(self, name: str, entry: TensorEntry) -> Any:
        """Give a whole tensor over the mapping that this reader keeps, or an owned one where it has none.

        Unlike `load`, this maps nothing new, so it can be called for 100,000 tensors; but views of one tensor see
        each other's writes, and so does `read`.

        Args:
            name: The tensor's name.
            entry: The tensor.

        Returns:
            The tensor.

        Raises:
            DtypeError: If the dtype is unknown here or to the library.
            TransportError: If the bytes cannot be read.
        """
        mapping = self._shared_mapping()
        if mapping is None:
            return self.load({name: entry})[name]
        return self.adapter.views(mapping, {name: entry}, self._data_start)[name]

    @property
    def is_mapped(self) -> bool:
        """Whether the source can be mapped."""
        return self._shared_mapping() is not None

    def _shared_mapping(self) -> Buffer | None:
        """Return the mapping that all parts are copied out of; nobody writes to it."""
        if self._mapping is None:
            with self._mapping_lock:
                if self._mapping is None:
                    self._mapping = self.source.map()
        return self._mapping

    def _read_boxes(self, entry: TensorEntry, dtype: DType, selection: Selection) -> Array:
        block = np.empty(selection.block_shape, dtype.bits_name)
        data_start = self._data_start + entry.data_offsets[0]
        for batch in _batches(cut_into_boxes(selection, dtype.bits), dtype):
            spans = [_span_of_run(box, dtype) for box in batch]
            runs = [np.empty(len(span), np.uint8) for span in spans]
            self.source.read_into((data_start + span.start, run.data) for span, run in zip(spans, runs, strict=True))
            for box, run in zip(batch, runs, strict=True):
                block[box.into] = _pick(_elements_of_run(run, box, dtype), box, selection.shape)
        return block

    def read_bytes(self, entry: TensorEntry, span: ByteRange) -> Buffer:
        """Read raw bytes of a tensor, whatever its dtype.

        Args:
            entry: The tensor.
            span: Half-open, from the tensor's first byte.

        Returns:
            The bytes.

        Raises:
            TransportError: If they cannot be read.
        """
        first = self._data_start + entry.data_offsets[0]
        return self.source.read(ByteRange(first + span.start, first + span.stop))

    def load(self, entries: Mapping[str, TensorEntry]) -> dict[str, Any]:
        """Read whole tensors.

        Args:
            entries: Name to entry, in the order of the bytes in the file.

        Returns:
            Name to tensor, in the same order. Each has storage bounds of its own, is writable, and shares memory
            with no other; writing never reaches the file.

        Raises:
            DtypeError: If a dtype is unknown here or to the library.
            LimitError: If a tensor has more dimensions than the library allows.
            TransportError: If the bytes cannot be read.
        """
        with PausedCollector():
            mapping = self.source.map()
            if mapping is not None:
                return self.adapter.views(mapping, entries, self._data_start)
            return self._load_into_arenas(entries)

    def _load_into_arenas(self, entries: Mapping[str, TensorEntry]) -> dict[str, Any]:
        arenas = [(group, *_cover(group)) for group in _groups(entries)]
        buffers = [np.empty(stop - start, np.uint8) for _, start, stop in arenas]
        self.source.read_into(
            (self._data_start + start, buffer.data)
            for (_, start, _), buffer in zip(arenas, buffers, strict=True)
            if len(buffer)
        )
        tensors: dict[str, Any] = {}
        for (group, start, _), buffer in zip(arenas, buffers, strict=True):
            tensors.update(self.adapter.views(buffer.data, group, -start))
        return tensors


def _take(whole: Array, selection: Selection) -> Array:
    """Return the block of an array that is in memory, as an owned copy."""
    slices = tuple(
        slice(axis.start, axis.stop, axis.step) if isinstance(axis, range) else slice(None) for axis in selection.axes
    )
    block = whole[slices]
    for place, axis in enumerate(selection.axes):
        if not isinstance(axis, range):
            block = block.take(axis, axis=place)
    return block.copy()


def _batches(boxes: Iterable[Box], dtype: DType) -> Iterator[list[Box]]:
    """Group boxes whose runs fit in memory together."""
    batch: list[Box] = []
    nbytes = 0
    for box in boxes:
        if batch and nbytes + len(_span_of_run(box, dtype)) > ARENA_NBYTES:
            yield batch
            batch, nbytes = [], 0
        batch.append(box)
        nbytes += len(_span_of_run(box, dtype))
    if batch:
        yield batch


def _span_of_run(box: Box, dtype: DType) -> ByteRange:
    """Return the whole bytes that hold the run, from the tensor's first byte."""
    first = box.start - box.start % dtype.n_per_group
    return ByteRange(first * dtype.bits // 8, -(-box.stop * dtype.bits // 8))


def _elements_of_run(run: npt.NDArray[np.uint8], box: Box, dtype: DType) -> Array:
    """Return the run's elements, shape (stop - start,)."""
    if dtype.is_packed:
        return unpack(run, dtype.bits, box.start % dtype.n_per_group, box.stop - box.start)
    return run.view(np.dtype(dtype.bits_name).newbyteorder("<"))


def _pick(run: Array, box: Box, shape: tuple[int, ...]) -> Array:
    """Return the wanted elements of a run, in the shape of the box."""
    extents: list[int] = []
    strides: list[int] = []
    stride = run.itemsize
    for axis, extent in zip(reversed(box.axes), reversed(shape), strict=True):
        is_range = isinstance(axis, range)
        extents.append(len(axis) if is_range else int(axis[-1] - axis[0]) + 1)
        strides.append(stride * axis.step if isinstance(axis, range) else stride)
        stride *= extent
    picked: Array = np.lib.stride_tricks.as_strided(run, extents[::-1], strides[::-1], writeable=False)
    for place, axis in enumerate(box.axes):
        if not isinstance(axis, range):
            picked = picked.take(axis - axis[0], axis=place)
    return picked


def _groups(entries: Mapping[str, TensorEntry]) -> Iterator[dict[str, TensorEntry]]:
    """Group neighbours in the file that share one allocation."""
    group: dict[str, TensorEntry] = {}
    begin = end = 0
    for name, entry in entries.items():
        start, stop = entry.data_offsets
        if group and (start != end or stop - begin > ARENA_NBYTES):
            yield group
            group = {}
        if not group:
            begin = start
        group[name] = entry
        end = stop
    if group:
        yield group


def _cover(group: Mapping[str, TensorEntry]) -> tuple[int, int]:
    """Return the half-open range of bytes that neighbours fill."""
    offsets = [entry.data_offsets for entry in group.values()]
    return offsets[0][0], offsets[-1][1]

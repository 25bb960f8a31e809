"""A reader of tensors as a safetensors file has them: contiguous, little endian.

A part of a mapped file is an array view of the mapping, indexed by NumPy and copied out, so only the touched pages
are read. A part of any other source is read box by box. Whole tensors are views of a new mapping, so that no two
loads see each other's writes, or are read into memory of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import (
    DenseArrays,
    DeviceMemory,
    StreamedTensor,
    TensorToWrite,
    adapter_for,
    can_be_filled,
    library_for,
)
from tensorkeep.arrays.elements import aligned_block, known_dtype, within_numpys_limits
from tensorkeep.buffers import Buffer
from tensorkeep.collector import PausedCollector
from tensorkeep.dtypes import DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import DtypeError
from tensorkeep.limits import ARENA_NBYTES, MAPPED_FROM_NBYTES
from tensorkeep.locks import ReadLock
from tensorkeep.tensors.indexing import Selection, c_strides, parse_index
from tensorkeep.tensors.readers._base import RUN_LENGTH, Planned, StoredTensor
from tensorkeep.tensors.readers._blocks import put_block, read_block, spans_of_block, take_block
from tensorkeep.tensors.to_device import (
    Block,
    Staged,
    are_worth_staging,
    can_stage,
    device_memory_of,
    load_blocks,
    load_staged,
)
from tensorkeep.transport import ByteRange, ByteSource, VerifyingSource

Array = npt.NDArray[Any]

_MAX_MAPPINGS = 4
"""Mappings of one load: tensors that overlap need several. Tensors that are left after these are read into memory."""

_CROOKED_NBYTES = 2**16
"""Bytes from which a tensor that is not aligned gets memory of its own; smaller ones are copied from a shared one."""


class TensorReader:
    """Reads tensors as they are stored in a source; through `checked`, if it is given, which checks what is read."""

    cast_to: DType | None = None
    """None: tensors have the dtype that they are stored in."""

    loads_at_once: ClassVar[bool] = False
    """Whether `load` should get all tensors that are wanted of a file, however large they are together."""

    def __init__(
        self,
        source: ByteSource,
        data_start: int,
        framework: str,
        device: Any = "cpu",
        checked: ByteSource | None = None,
    ) -> None:
        self._library = library_for(framework)  # refuses an unknown one now, not when something is read
        self.source = source if checked is None else checked
        self.unchecked = source
        self.path = source.name
        self.data_start = data_start
        self.framework = framework
        self.device = device
        self._adapter: DenseArrays | None = None
        self._whole: tuple[Buffer, int] | None = None
        self._lock = ReadLock()

    def __reduce__(self) -> tuple[Any, ...]:
        checked = self.source if self.is_checked else None
        return TensorReader, (self.unchecked, self.data_start, self.framework, self.device, checked)

    def with_framework(self, framework: str, device: Any = "cpu") -> TensorReader:
        """Return the same reader for another array library."""
        checked = self.source if self.is_checked else None
        return TensorReader(self.unchecked, self.data_start, framework, device, checked)

    def checking(self, checked: ByteSource) -> TensorReader:
        """Return a reader that reads tensors through a source that checks them."""
        return TensorReader(self.unchecked, self.data_start, self.framework, self.device, checked)

    @property
    def is_checked(self) -> bool:
        """Whether what is read is compared with digests."""
        return isinstance(self.source, VerifyingSource) or self.source is not self.unchecked

    @property
    def adapter(self) -> DenseArrays:
        """The array library, imported on first use."""
        if self._adapter is None:
            self._adapter = adapter_for(self.framework, self.device)
        return self._adapter

    def close(self) -> None:
        """Close the source."""
        self._whole = None
        self.source.close()

    def read(self, name: str, entry: TensorEntry, selection: Selection) -> Any:
        """Read a part of a tensor."""
        staged = self.staged_block(name, entry, selection)
        if staged is not None and staged[1].is_worth_gathering:
            return load_blocks(staged[0], [staged[1]])[0][selection.local]
        dtype = known_dtype(name, entry)
        whole = None if dtype.is_packed else self.mapping()
        with within_numpys_limits(name, entry.shape):
            if whole is None:
                block = self._read(entry, dtype, selection)
            else:
                buffer, start = whole
                offset = self.data_start - start + entry.data_offsets[0]
                block = take_block(np.ndarray(entry.shape, _stored(dtype), buffer, offset), selection)
            elements = selection.apply(block.astype(dtype.bits_name, copy=False))
        with self._naming({name: entry}):
            return self.adapter.from_elements(elements, dtype)

    def staged_block(self, name: str, entry: TensorEntry, selection: Selection) -> tuple[DeviceMemory, Block] | None:
        """Return the device that can copy a part by itself, and how to read it; None to read it in another way."""
        device = device_memory_of(self.adapter)
        if device is None or not (selection.keeps_order and can_stage(self.adapter, [entry])):
            return None
        return device, self.block(name, entry, selection)

    def block(self, name: str, entry: TensorEntry, selection: Selection) -> Block:
        """Return how to read a part of a tensor piece by piece; its dtype is not a packed one."""
        dtype, first = known_dtype(name, entry), self.data_start + entry.data_offsets[0]
        strides = c_strides(entry.shape)

        def read(index: tuple[int | slice, ...], into: memoryview) -> None:
            part = selection.part(index)
            block = np.frombuffer(into, _stored(dtype)).reshape(part.block_shape)
            mapping = self.mapping()
            if mapping is None:
                read_block(self.source, first, dtype, part, strides, block)
            else:
                buffer, start = mapping
                put_block(block, np.ndarray(entry.shape, _stored(dtype), buffer, first - start), part)

        return Block(self.source.name, dtype, selection.block_shape, read)

    def plan(self, entry: TensorEntry, selection: Selection) -> Planned:
        """Return what reading a part of a tensor would read."""
        dtype = known_dtype("", entry)
        start = self.data_start + entry.data_offsets[0]
        return self.source, spans_of_block(self.source, start, dtype, selection, c_strides(selection.shape))

    def view(self, name: str, entry: TensorEntry) -> Any | None:
        """Return a whole tensor on the CPU over the mapping that this reader keeps.

        None if a device gets it faster through host buffers.
        """
        if entry.nbytes >= MAPPED_FROM_NBYTES and self.staged({name: entry}) is not None:
            return None
        whole = None if known_dtype(name, entry).is_packed else self.mapping()
        if whole is None:
            return None
        buffer, start = whole
        return self.adapter.views(buffer, {name: entry}, self.data_start - start)[name]

    def place(self, tensor: Any) -> Any:
        """Move a tensor to the device."""
        return self.adapter.place({"": tensor})[""]

    def mapping(self) -> tuple[Buffer, int] | None:
        """Return the mapping for all parts and views, and the byte of the source at which it begins.

        None if what is read is checked: a part is checked in memory of its own, so that nothing can change it later.
        """
        if self.is_checked:
            return None
        if self._whole is None and self.source.nbytes:
            with self._lock:
                if self._whole is None:
                    self._whole = self.source.map(ByteRange(0, self.source.nbytes))
        return self._whole

    def _read(self, entry: TensorEntry, dtype: DType, selection: Selection) -> Array:
        block = np.empty(selection.block_shape, _stored(dtype))
        start = self.data_start + entry.data_offsets[0]
        read_block(self.source, start, dtype, selection, c_strides(selection.shape), block)
        return block

    def read_run(self, name: str, entry: TensorEntry, start: int, stop: int) -> Any:
        """Read a run of elements into memory, even if the file is mapped."""
        dtype = known_dtype(name, entry)
        if dtype.is_packed:
            flat = TensorEntry(entry.dtype, (entry.n_elements,), entry.data_offsets)
            elements = self._read(flat, dtype, parse_index(slice(start, stop), flat.shape))
        else:
            elements = np.empty(stop - start, _stored(dtype))
            first = self.data_start + entry.data_offsets[0] + start * dtype.itemsize
            self.source.read_into([(first, elements.view(np.uint8).data)] if len(elements) else [])
        return self.adapter.from_elements(elements.astype(dtype.bits_name, copy=False), dtype)

    def run_length(self, entry: TensorEntry) -> int:  # noqa: ARG002 - the protocol's
        """Return how many elements each `read_run` should read: the same for all tensors."""
        return RUN_LENGTH

    def span_of(self, entry: TensorEntry) -> ByteRange:
        """Return the range of the source with a tensor's bytes."""
        start, stop = entry.data_offsets
        return ByteRange(self.data_start + start, self.data_start + stop)

    def tensor_to_write(self, name: str, entry: TensorEntry, digest: bytes | None = None) -> TensorToWrite:  # noqa: ARG002
        """Describe a tensor for writing, even one of an unknown dtype."""
        dtype = entry.known_dtype or DType(entry.dtype, 8, -1, "", None, "uint8")
        stored = StoredTensor(dtype, entry.shape, entry.nbytes, self.unchecked, self.span_of(entry), digest)
        if not self.is_checked or digest is None:
            return stored
        # The kernel would copy bytes that nobody has checked; these pass through here, and a save refuses others.
        return StreamedTensor(dtype, entry.shape, entry.nbytes, stored.buffers, stored.extent, stored.memory, digest)

    def load(self, entries: Mapping[str, TensorEntry], *, are_apart: bool = False) -> dict[str, Any]:
        """Read whole tensors."""
        staged = self.staged(entries)
        if staged is not None and are_worth_staging([staged[1]]):
            return load_staged([(staged[0], [staged[1]])])[0][0]
        filled = self._filled(entries)
        if filled:
            rest = {name: entry for name, entry in entries.items() if name not in filled}
            filled |= self._load(rest, are_apart=are_apart)
            return {name: filled[name] for name in entries}
        return self._load(entries, are_apart=are_apart)

    def _filled(self, entries: Mapping[str, TensorEntry]) -> dict[str, Any]:
        """Read into the memory of tensors that a library wants to be filled."""
        adapter = self.adapter
        if not can_be_filled(adapter):
            return {}

        def fill(memory: Mapping[str, memoryview]) -> None:
            self.source.read_into((self.span_of(entries[name]).start, into) for name, into in memory.items())

        return adapter.filled(entries, fill)

    def _load(self, entries: Mapping[str, TensorEntry], *, are_apart: bool) -> dict[str, Any]:
        if are_apart:
            return self._load_apart(entries)
        crooked = {name: entry for name, entry in entries.items() if self._is_crooked(entry)}
        if not crooked and _are_apart(entries):
            return self._load_apart(entries)
        tensors = self._load_groups([{name: entry} for name, entry in crooked.items()])
        rest: Mapping[str, TensorEntry] = {name: entry for name, entry in entries.items() if name not in crooked}
        for _ in range(_MAX_MAPPINGS):
            apart, rest = _split(rest)
            tensors |= self._load_apart(apart)
        tensors |= self._load_into_arenas(rest)
        return {name: tensors[name] for name in entries}

    def staged(self, entries: Mapping[str, TensorEntry]) -> tuple[DeviceMemory, Staged] | None:
        """Return the device that can copy tensors by itself, and what to load; None to load them in another way."""
        device = device_memory_of(self.adapter)
        if device is None or not can_stage(self.adapter, entries.values()):
            return None
        return device, Staged(self.source, self.data_start, entries)

    def _load_apart(self, entries: Mapping[str, TensorEntry]) -> dict[str, Any]:
        """Read whole tensors that do not overlap, in the order of their bytes: from one mapping, if possible."""
        if not entries:
            return {}
        start, stop = _cover(entries)
        mapping = None
        if stop - start >= MAPPED_FROM_NBYTES:
            mapping = self.source.map(ByteRange(self.data_start + start, self.data_start + stop))
        if mapping is None:
            return self._load_into_arenas(entries)
        buffer, first = mapping
        if self.adapter.is_on_host:
            return self._views(buffer, entries, self.data_start - first)
        tensors: dict[str, Any] = {}
        for group in neighbors(entries):  # at most one group is in the CPU's memory at once
            tensors |= self.adapter.place(self._views(buffer, group, self.data_start - first))
        return tensors

    def _views(self, buffer: Buffer, entries: Mapping[str, TensorEntry], base: int) -> dict[str, Any]:
        adapter = self.adapter
        with PausedCollector(), self._naming(entries):
            return adapter.views(buffer, entries, base)

    @contextmanager
    def _naming(self, entries: Mapping[str, TensorEntry]) -> Iterator[None]:
        """Name the file, and the first tensor of a dtype that a library lacks, in the error that says so."""
        try:
            yield
        except DtypeError as error:
            changes = {"path": error.path or self.path}
            lacking = [name for name, entry in entries.items() if entry.dtype == error.found]
            if error.tensor is None and lacking:
                changes["tensor"] = lacking[0]
                changes["message"] = f"{error.message}, which is the dtype of tensor `{lacking[0]}`"
            raise error.with_fields(**changes) from None

    def _is_crooked(self, entry: TensorEntry) -> bool:
        """Whether a tensor is large and not aligned: a mapping of it would be copied, so it is read instead."""
        if entry.nbytes < _CROOKED_NBYTES:
            return False
        dtype = entry.known_dtype
        if dtype is None:
            return False
        alignment = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
        if self.adapter.is_on_host:
            alignment = max(alignment, self._library.alignment)
        return (self.data_start + entry.data_offsets[0]) % alignment != 0

    def _load_into_arenas(self, entries: Mapping[str, TensorEntry]) -> dict[str, Any]:
        return self._load_groups(list(neighbors(entries)))

    def _load_groups(self, groups: list[dict[str, TensorEntry]]) -> dict[str, Any]:
        """Read groups of adjacent tensors, each into one block of memory."""
        batches = [groups] if self.adapter.is_on_host else [[group] for group in groups]
        tensors: dict[str, Any] = {}
        for batch in batches:
            arenas = self._read_arenas(batch)
            for group, (arena, start) in zip(batch, arenas, strict=True):
                tensors |= self.adapter.place(self._views(arena.data, group, -start))
        return tensors

    def _read_arenas(self, groups: list[dict[str, TensorEntry]]) -> list[tuple[npt.NDArray[np.uint8], int]]:
        """Read each group into one block of memory; return each block and the byte of the data at which it begins."""
        spans = [_cover(group) for group in groups]
        arenas = [aligned_block(stop - start, self._library.alignment) for start, stop in spans]
        self.source.read_into(
            (self.data_start + start, arena.data)
            for (start, _), arena in zip(spans, arenas, strict=True)
            if len(arena)
        )
        return [(arena, start) for arena, (start, _) in zip(arenas, spans, strict=True)]


def neighbors(entries: Mapping[str, TensorEntry]) -> Iterator[dict[str, TensorEntry]]:
    """Group tensors that are adjacent in the file and get one block of memory."""
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


def _stored(dtype: DType) -> np.dtype[Any]:
    """Return the NumPy dtype in which elements are moved as they are in a file."""
    return np.dtype(dtype.bits_name).newbyteorder("<")


def _are_apart(entries: Mapping[str, TensorEntry]) -> bool:
    """Say whether tensors are in the order of their bytes and do not overlap."""
    end = 0
    for entry in entries.values():
        start, stop = entry.data_offsets
        if start < end:
            return False
        end = stop
    return True


def _split(entries: Mapping[str, TensorEntry]) -> tuple[dict[str, TensorEntry], dict[str, TensorEntry]]:
    """Split tensors into some that do not overlap, in the order of their bytes, and the rest."""
    apart: dict[str, TensorEntry] = {}
    rest: dict[str, TensorEntry] = {}
    end = 0
    for name, entry in entries.items():
        start, stop = entry.data_offsets
        if start < end:
            rest[name] = entry
        else:
            apart[name] = entry
            end = stop
    return apart, rest


def _cover(entries: Mapping[str, TensorEntry]) -> tuple[int, int]:
    """Return the half-open range of bytes from the first tensor to the last, which are in order."""
    offsets = list(entries.values())
    return offsets[0].data_offsets[0], offsets[-1].data_offsets[1]

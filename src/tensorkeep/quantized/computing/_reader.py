"""A reader of a quantized tensor's numbers, computed from the parts of stored tensors that a selection needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from math import prod
from typing import Any, Final

import msgspec
import numpy as np

from tensorkeep.arrays import (
    Arithmetic,
    DenseArrays,
    DeviceMemory,
    StreamedTensor,
    TensorToWrite,
    adapter_for,
    numpy_arithmetic,
    pieces,
    tensor_to_write,
)
from tensorkeep.arrays.elements import known_dtype, within_numpys_limits
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import DType
from tensorkeep.entries import TensorEntry
from tensorkeep.parallel import parallel_for_each
from tensorkeep.quantized._blocks import Box
from tensorkeep.quantized._numbers import Array
from tensorkeep.quantized._record import QuantizedTensor
from tensorkeep.quantized.families import BY_NAME
from tensorkeep.tensors import LazyTensor, load_together, parse_index
from tensorkeep.tensors.indexing import Selection
from tensorkeep.tensors.lazy import COMPUTED_LENGTH, Computation, computing_device
from tensorkeep.tensors.readers import Planned, Reader, UnstoredReader, joined_plan, run_of_blocks
from tensorkeep.tensors.to_device import Block, gathering_device

_BOX_LENGTH: Final = 2**19
"""Numbers that one thread computes at once: 2 MB of F32, and about as much to compute them in."""

_PIECE_NBYTES: Final = 2**24
"""Bytes of F32 that are streamed at once."""

_RUN_LENGTH: Final = 2**22
_N_THREADS: Final = 8


class NumbersReader(UnstoredReader, frozen=True, eq=False):
    """Reads one tensor.

    Attributes:
        tensor: What is known of it.
        parts: Role to stored tensor, of the library and on the device of the numbers.
        in_numpy: The same of NumPy.
        dtype: The dtype of the numbers, which are computed in F32.
    """

    tensor: QuantizedTensor
    parts: Mapping[str, LazyTensor]
    in_numpy: Mapping[str, LazyTensor]
    dtype: DType

    @property
    def _data(self) -> Reader:
        return self.parts["data"].reader

    @property
    def path(self) -> str | None:
        """The file of the data, for messages."""
        return self._data.path

    @property
    def adapter(self) -> DenseArrays:
        """The array library."""
        return self._data.adapter

    def with_framework(self, framework: str, device: Any = "cpu") -> NumbersReader:
        """Return the same reader for another array library."""
        parts = {role: part.with_framework(framework, device) for role, part in self.parts.items()}
        return msgspec.structs.replace(self, parts=parts)

    def computation(self, name: str, entry: TensorEntry) -> Computation | None:  # noqa: ARG002 - of one tensor
        """Return how the device computes the tensor; None if it is left to NumPy."""
        if computing_device(self.adapter, entry.nbytes) is None:
            return None
        return Computation(self.parts, self.dtype, entry.shape, self._compute)

    def _compute(self, ops: Arithmetic, stored: Mapping[str, Any], into: Any) -> None:
        """Compute the tensor on the device."""

        def take(role: str, index: Any) -> Any:
            return stored[role][index]

        for part in _parts(parse_index(..., self.tensor.shape), COMPUTED_LENGTH):
            numbers = BY_NAME[self.tensor.layout].decode(ops, self.tensor, take, part.box)
            into[part.into] = self.adapter.cast(numbers, self.dtype)

    def load(self, entries: Mapping[str, TensorEntry]) -> dict[str, Any]:
        """Compute the whole tensor, on the device if that can."""
        if all(self.computation(name, entry) for name, entry in entries.items()):
            return load_together({name: LazyTensor(name, entry, self) for name, entry in entries.items()})
        return UnstoredReader.load(self, entries)

    def read(self, name: str, entry: TensorEntry, selection: Selection) -> Any:
        """Compute a part of the tensor."""
        is_whole = selection.keeps_order and selection.n_elements == prod(entry.shape)
        if is_whole and self.computation(name, entry) is not None:
            return self.load({name: entry})[name][selection.local]
        with within_numpys_limits(name, entry.shape):
            return self.adapter.from_elements(selection.apply(self._block(selection)), self.dtype)

    def staged_block(self, name: str, entry: TensorEntry, selection: Selection) -> tuple[DeviceMemory, Block] | None:
        """Return the device that can copy numbers by itself, and how to compute them; None otherwise."""
        device = gathering_device(self.adapter, self.dtype)
        if device is None or not selection.keeps_order:
            return None

        def read(index: tuple[int | slice, ...], into: memoryview) -> None:
            part = selection.part(index)
            block = np.frombuffer(into, self.dtype.bits_name).reshape(part.block_shape)
            with within_numpys_limits(name, entry.shape):
                self._fill(block, part, n_threads=1)  # other threads compute other pieces

        source = self._data.source
        return device, Block(name if source is None else source.name, self.dtype, selection.block_shape, read)

    def read_run(self, name: str, entry: TensorEntry, start: int, stop: int) -> Any:
        """Compute a run of elements."""
        elements = run_of_blocks(name, entry, start, stop, self.dtype.bits_name, self._block)
        return self.adapter.from_elements(elements, self.dtype)

    def run_length(self, entry: TensorEntry) -> int:
        """Return how many elements each `read_run` should compute: whole rows."""
        row = max(prod(entry.shape[1:]), 1)
        return max(_RUN_LENGTH // row * row, min(row, _RUN_LENGTH))

    def plan(self, entry: TensorEntry, selection: Selection) -> Planned:
        """Return what computing a part of the tensor would read."""
        if selection.n_elements == prod(entry.shape):
            return joined_plan(
                lazy.reader.plan(lazy.entry, parse_index(..., lazy.shape)) for lazy in self.in_numpy.values()
            )
        planned: list[Planned] = []
        decode = BY_NAME[self.tensor.layout].decode
        for part in _parts(selection, _BOX_LENGTH):
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                decode(numpy_arithmetic(), self.tensor, partial(self._planned, planned), part.box)
        return joined_plan(planned)

    def _planned(self, planned: list[Planned], role: str, index: Any) -> Array:
        """Note what would be read, and return zeros for it."""
        lazy = self.in_numpy[role]
        selection = parse_index(index, lazy.shape)
        planned.append(lazy.reader.plan(lazy.entry, selection))
        return selection.apply(np.zeros(selection.block_shape, known_dtype(lazy.name, lazy.entry).bits_name))

    def tensor_to_write(self, name: str, entry: TensorEntry, digest: bytes | None = None) -> TensorToWrite:  # noqa: ARG002
        """Describe the tensor for writing; it is computed piece by piece."""
        return StreamedTensor(self.dtype, entry.shape, entry.nbytes, partial(self._buffers, name, entry))

    def _buffers(self, name: str, entry: TensorEntry) -> Iterator[Buffer]:
        reader = self.with_framework("numpy")
        for index in pieces(entry.shape, 4, _PIECE_NBYTES):
            yield from tensor_to_write(reader.read(name, entry, parse_index(index, entry.shape)), name).buffers()

    def _block(self, selection: Selection) -> Array:
        """Return the block of a selection, of dtype `bits_name`."""
        block = np.empty(selection.block_shape, self.dtype.bits_name)
        self._fill(block, selection, _N_THREADS)
        return block

    def _fill(self, block: Array, selection: Selection, n_threads: int) -> None:
        """Compute the block of a selection in memory of its shape."""
        parts = list(_parts(selection, _BOX_LENGTH)) if block.size else []
        parallel_for_each(parts, partial(self._put, block), n_threads=n_threads)

    def _put(self, block: Array, part: _Part) -> None:
        """Compute one part of a block."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            values = BY_NAME[self.tensor.layout].decode(numpy_arithmetic(), self.tensor, self._take, part.box)
            numbers = adapter_for("numpy").cast(np.ascontiguousarray(values[part.within]), self.dtype)
        block[part.into] = numbers.view(block.dtype)

    def _take(self, role: str, index: Any) -> Array:
        taken: Array = self.in_numpy[role][index]
        return taken


class _Part(msgspec.Struct, frozen=True):
    """A part of a selection.

    Attributes:
        box: The elements to compute.
        within: Those of them that are selected.
        into: Their place in the block.
    """

    box: Box
    within: tuple[Any, ...]
    into: tuple[slice, ...]


def _parts(selection: Selection, length: int) -> Iterator[_Part]:
    """Cut a selection into parts of some length that are computed at once, halving the first dimensions."""
    left = [tuple(range(len(axis)) for axis in selection.axes)]
    while left:
        places = left.pop()
        chosen = [axis[one.start : one.stop] for axis, one in zip(selection.axes, places, strict=True)]
        box = tuple(range(int(axis[0]), int(axis[-1]) + 1) for axis in chosen)
        long = next((number for number, axis in enumerate(chosen) if len(axis) > 1), None)
        if prod(map(len, box)) > length and long is not None:
            middle = places[long].start + len(places[long]) // 2
            halves = range(places[long].start, middle), range(middle, places[long].stop)
            left += [(*places[:long], half, *places[long + 1 :]) for half in reversed(halves)]
            continue
        within = np.ix_(*(np.asarray(axis) - one.start for axis, one in zip(chosen, box, strict=True)))
        is_whole = all(len(axis) == len(one) for axis, one in zip(chosen, box, strict=True))
        into = tuple(slice(one.start, one.stop) for one in places)
        yield _Part(box, (...,) if is_whole else within, into)

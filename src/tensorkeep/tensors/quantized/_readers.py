"""Readers of tensors in ggml's blocks: as they are stored, which are only bytes, and as the numbers in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final, NoReturn

import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import (
    Arithmetic,
    DenseArrays,
    DeviceMemory,
    StreamedTensor,
    TensorToWrite,
    adapter_for,
    pieces,
    tensor_to_write,
)
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import DtypeError
from tensorkeep.formats.gguf import GGML_TYPES_BY_NAME, GgmlType
from tensorkeep.parallel import parallel_for_each
from tensorkeep.tensors.indexing import Selection
from tensorkeep.tensors.lazy import COMPUTED_LENGTH, Computation, LazyTensor, computing_device, load_together
from tensorkeep.tensors.quantized._dequantize import DEQUANTIZED, dequantize, dequantize_by
from tensorkeep.tensors.readers import Planned, StoredTensor, TensorReader, neighbors
from tensorkeep.tensors.to_device import Block, gathering_device
from tensorkeep.transport import ByteRange

Array = npt.NDArray[Any]

_RUN_LENGTH: Final = 2**22
"""Elements that are streamed at once: 8 MB of BF16 and as much to compute them in. Whole blocks of every type."""

_PIECE_LENGTH: Final = 2**16
"""Elements that one thread computes at once, so that what it needs meanwhile stays in the CPU's cache."""

_N_THREADS: Final = 8

_HINT: Final = 'dequantize="bf16" (--dequantize bf16) or .dequantize("bf16") gives its numbers, .raw() its bytes'


class BlocksToWrite(StoredTensor, frozen=True, kw_only=True):
    """Blocks described for writing: rows of bytes.

    Attributes:
        type_name: Their type.
        numbers_shape: Shape of the tensor in numbers.
        is_big_endian: Whether the scales have their highest byte first.
    """

    type_name: str
    numbers_shape: tuple[int, ...]
    is_big_endian: bool


class QuantizedReader(msgspec.Struct, frozen=True):
    """Knows where blocks are, and reads none: they are no elements.

    Attributes:
        stored: Reads their bytes.
        in_numpy: The same as NumPy arrays, from which the numbers are computed.
        is_big_endian: Whether the scales have their highest byte first.
    """

    stored: TensorReader
    in_numpy: TensorReader
    is_big_endian: bool = False

    @property
    def source(self) -> Any:
        """The source of the blocks."""
        return self.stored.source

    @property
    def path(self) -> str:
        """The file, for messages."""
        return self.stored.path

    @property
    def cast_to(self) -> None:
        """None: tensors have the type that they are stored in."""

    @property
    def adapter(self) -> DenseArrays:
        """The array library."""
        return self.stored.adapter

    def with_framework(self, framework: str, device: Any = "cpu") -> QuantizedReader:
        """Return the same reader for another array library."""
        return QuantizedReader(self.stored.with_framework(framework, device), self.in_numpy, self.is_big_endian)

    def span_of(self, entry: TensorEntry) -> ByteRange:
        """Return the range of the source with a tensor's blocks."""
        return self.stored.span_of(entry)

    def read(self, name: str, entry: TensorEntry, selection: Selection) -> NoReturn:  # noqa: ARG002
        """Refuse."""
        _refuse(name, entry)

    def read_run(self, name: str, entry: TensorEntry, start: int, stop: int) -> NoReturn:  # noqa: ARG002
        """Refuse."""
        _refuse(name, entry)

    def load(self, entries: Mapping[str, TensorEntry]) -> dict[str, Any]:
        """Refuse."""
        for name, entry in entries.items():
            _refuse(name, entry)
        return {}

    def view(self, name: str, entry: TensorEntry) -> NoReturn:
        """Refuse."""
        _refuse(name, entry)

    def plan(self, entry: TensorEntry, selection: Selection) -> Planned:
        """Return which blocks hold a part of a tensor."""
        return self.stored.plan(raw_entry(entry), _blocks_of(entry, selection))

    def run_length(self, entry: TensorEntry) -> int:  # noqa: ARG002
        """Return how many elements to stream at once."""
        return _RUN_LENGTH

    def place(self, tensor: Any) -> Any:
        """Move a tensor to the device."""
        return self.stored.place(tensor)

    def dequantized(self, name: str, entry: TensorEntry, dtype: DType) -> DequantizedReader:
        """Return a reader of the numbers."""
        if entry.dtype not in DEQUANTIZED:
            raise DtypeError(
                f"tensor `{name}` cannot be dequantized",
                tensor=name,
                expected="one of " + ", ".join(DEQUANTIZED),
                found=entry.dtype,
                hint="ggml cannot either: it uses this type only while it computes. .raw() gives its bytes",
            )
        if self.is_big_endian:
            raise DtypeError(
                f"tensor `{name}` cannot be dequantized",
                tensor=name,
                expected="blocks with the lowest byte first",
                found="a big-endian file, whose writers do not agree on which parts of a block they swap",
                hint=".raw() gives its bytes",
            )
        return DequantizedReader(self, dtype)

    def raw(self, entry: TensorEntry) -> tuple[TensorEntry, TensorReader]:
        """Return the entry of the blocks as rows of bytes, and their reader."""
        return raw_entry(entry), self.stored

    def tensor_to_write(self, name: str, entry: TensorEntry, digest: bytes | None = None) -> StoredTensor:
        """Describe the blocks for writing: rows of bytes."""
        raw = self.stored.tensor_to_write(name, raw_entry(entry), digest)
        return BlocksToWrite(
            **msgspec.structs.asdict(raw),
            type_name=entry.dtype,
            numbers_shape=entry.shape,
            is_big_endian=self.is_big_endian,
        )


class DequantizedReader(msgspec.Struct, frozen=True):
    """Reads the numbers in blocks.

    Attributes:
        quantized: Knows where the blocks are.
        cast_to: The dtype of the numbers; they are computed in F32.
    """

    quantized: QuantizedReader
    cast_to: DType

    @property
    def source(self) -> None:
        """None: the numbers are in no file."""

    @property
    def path(self) -> str:
        """The file, for messages."""
        return self.quantized.path

    @property
    def adapter(self) -> DenseArrays:
        """The array library."""
        return self.quantized.adapter

    def with_framework(self, framework: str, device: Any = "cpu") -> DequantizedReader:
        """Return the same reader for another array library."""
        return DequantizedReader(self.quantized.with_framework(framework, device), self.cast_to)

    def span_of(self, entry: TensorEntry) -> None:
        """Return None: the numbers are in no file."""

    def read(self, name: str, entry: TensorEntry, selection: Selection) -> Any:
        """Read the blocks that hold a part of a tensor, and compute it."""
        is_whole = selection.keeps_order and selection.n_elements == entry.n_elements
        if is_whole and self.computation(name, entry) is not None:
            return self.load({name: entry})[name][selection.local]
        return self._given(selection.apply(self._block(name, entry, selection, _N_THREADS)))

    def staged_block(self, name: str, entry: TensorEntry, selection: Selection) -> tuple[DeviceMemory, Block] | None:
        """Return the device that can copy numbers by itself, and how to compute them; None otherwise."""
        device = gathering_device(self.adapter, self.cast_to)
        if device is None or not selection.keeps_order:
            return None

        def read(index: tuple[int | slice, ...], into: memoryview) -> None:
            part = selection.part(index)
            numbers = self._block(name, entry, part, n_threads=1)  # other threads compute other pieces
            bits = np.frombuffer(into, self.cast_to.bits_name).reshape(part.block_shape)
            bits[...] = numbers.view(self.cast_to.bits_name)

        path = self.quantized.source.name
        return device, Block(path, self.cast_to, selection.block_shape, read)

    def computation(self, name: str, entry: TensorEntry) -> Computation | None:
        """Return how the device computes the numbers; None if they are left to NumPy."""
        if computing_device(self.adapter, self.cast_to.nbytes(entry.n_elements)) is None:
            return None
        raw = LazyTensor(name, raw_entry(entry), self.quantized.stored)
        return Computation({"data": raw}, self.cast_to, entry.shape, partial(self._compute, entry))

    def _compute(self, entry: TensorEntry, ops: Arithmetic, stored: Mapping[str, Any], into: Any) -> None:
        """Compute a tensor on the device, some blocks at a time."""
        type_ = _type_of(entry)
        grid = (*entry.shape[:-1], entry.shape[-1] // type_.n_per_block)
        blocks = stored["data"].reshape(*grid, type_.block_nbytes)
        places = into.view(*grid, type_.n_per_block)  # however it is strided
        for index in pieces(grid, type_.n_per_block, COMPUTED_LENGTH):
            rows = blocks[index].reshape(-1, type_.block_nbytes)
            numbers = self.adapter.cast(dequantize_by(ops, type_.name, rows), self.cast_to)
            place = places[index]
            place[...] = numbers.reshape(place.shape)

    def _block(self, name: str, entry: TensorEntry, selection: Selection, n_threads: int) -> Array:
        """Compute the block of a selection."""
        blocks = _blocks_of(entry, selection)
        raw = self.quantized.in_numpy.read(name, raw_entry(entry), blocks)
        rows = self._numbers(entry, raw, n_threads).reshape(*blocks.block_shape[:-1], -1)
        last, n_before = selection.axes[-1], _n_before(entry, selection)
        if isinstance(last, range):
            return rows[..., last.start - n_before : last.stop - n_before : last.step]
        return rows[..., last - n_before]

    def plan(self, entry: TensorEntry, selection: Selection) -> Planned:
        """Return which blocks reading a part of a tensor would read."""
        return self.quantized.plan(entry, selection)

    def read_run(self, name: str, entry: TensorEntry, start: int, stop: int) -> Any:
        """Read a run of elements into memory, even if the file is mapped."""
        return self._given(self._run(name, entry, start, stop))

    def run_length(self, entry: TensorEntry) -> int:
        """Return how many elements to stream at once."""
        return self.quantized.run_length(entry)

    def load(self, entries: Mapping[str, TensorEntry]) -> dict[str, Any]:
        """Read whole tensors, a few at a time, so that little more than the result and its blocks is in memory."""
        by_device = {name: entry for name, entry in entries.items() if self.computation(name, entry) is not None}
        loaded = load_together({name: LazyTensor(name, entry, self) for name, entry in by_device.items()})
        for group in neighbors({name: entry for name, entry in entries.items() if name not in by_device}):
            raw = self.quantized.in_numpy.load({name: raw_entry(entry) for name, entry in group.items()})
            for name, entry in group.items():
                loaded[name] = self._given(self._numbers(entry, raw.pop(name)).reshape(entry.shape))
        return loaded

    def view(self, name: str, entry: TensorEntry) -> None:
        """Return None: the numbers are in no file."""

    def place(self, tensor: Any) -> Any:
        """Move a tensor to the device."""
        return self.quantized.place(tensor)

    def tensor_to_write(self, name: str, entry: TensorEntry, digest: bytes | None = None) -> TensorToWrite:  # noqa: ARG002
        """Describe a tensor for writing; its numbers are computed run by run."""
        return StreamedTensor(
            self.cast_to, entry.shape, self.cast_to.nbytes(entry.n_elements), lambda: self._buffers(name, entry)
        )

    def _buffers(self, name: str, entry: TensorEntry) -> Iterator[Buffer]:
        for start in range(0, entry.n_elements, _RUN_LENGTH):
            run = self._run(name, entry, start, min(start + _RUN_LENGTH, entry.n_elements))
            yield from tensor_to_write(run, name).buffers()

    def _run(self, name: str, entry: TensorEntry, start: int, stop: int) -> Array:
        type_ = _type_of(entry)
        first, last = start // type_.n_per_block, -(-stop // type_.n_per_block)
        flat = TensorEntry("U8", (entry.nbytes,), entry.data_offsets)
        raw = self.quantized.in_numpy.read_run(name, flat, first * type_.block_nbytes, last * type_.block_nbytes)
        n_before = first * type_.n_per_block
        return self._numbers(entry, raw)[start - n_before : stop - n_before]

    def _numbers(self, entry: TensorEntry, raw: Array, n_threads: int = _N_THREADS) -> Array:
        """Compute the numbers of whole blocks, in pieces by several threads."""
        type_, numpy = _type_of(entry), adapter_for("numpy")
        raw = raw.reshape(-1)
        n_elements = len(raw) // type_.block_nbytes * type_.n_per_block
        elements = np.empty(n_elements, self.cast_to.bits_name)

        def compute(start: int) -> None:
            stop = min(start + _PIECE_LENGTH, n_elements)
            numbers = dequantize(type_.name, raw[type_.row_nbytes(start) : type_.row_nbytes(stop)])
            elements[start:stop] = numpy.cast(numbers, self.cast_to).view(elements.dtype)

        parallel_for_each(range(0, n_elements, _PIECE_LENGTH), compute, n_threads=n_threads)
        numbers: Array = numpy.from_elements(elements, self.cast_to)
        return numbers

    def _given(self, numbers: Array) -> Any:
        """Return numbers as a tensor of the array library, on the device."""
        return self.adapter.from_elements(numbers.view(self.cast_to.bits_name), self.cast_to)


def raw_entry(entry: TensorEntry) -> TensorEntry:
    """Return the entry of a tensor's blocks as rows of bytes."""
    return TensorEntry("U8", _type_of(entry).raw_shape(entry.shape), entry.data_offsets)


def _type_of(entry: TensorEntry) -> GgmlType:
    return GGML_TYPES_BY_NAME[entry.dtype]


def _blocks_of(entry: TensorEntry, selection: Selection) -> Selection:
    """Return the bytes of the rows' blocks that hold what is selected."""
    type_, last = _type_of(entry), selection.axes[-1]
    first = type_.row_nbytes(_n_before(entry, selection))
    span = range(first, type_.row_nbytes(int(last[-1])) + type_.block_nbytes if len(last) else first)
    return Selection(type_.raw_shape(selection.shape), (*selection.axes[:-1], span), (...,))


def _n_before(entry: TensorEntry, selection: Selection) -> int:
    """Return how many elements of a row are before the first block that holds what is selected."""
    last = selection.axes[-1]
    return int(last[0]) // _type_of(entry).n_per_block * _type_of(entry).n_per_block if len(last) else 0


def _refuse(name: str, entry: TensorEntry) -> NoReturn:
    type_ = _type_of(entry)
    raise DtypeError(
        f"tensor `{name}` is quantized",
        tensor=name,
        found=f"{type_.name}: blocks of {type_.n_per_block} numbers in {type_.block_nbytes} bytes",
        hint=_HINT,
    )

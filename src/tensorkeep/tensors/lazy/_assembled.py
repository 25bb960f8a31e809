"""A reader of a tensor in several pieces, each with one region of it, in any number of files.

A read touches only the pieces that it needs. If the pieces are consecutive runs of the tensor's bytes, it is read,
and copied by the kernel, like a tensor in one place.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property, partial
from math import prod
from typing import Any, NoReturn, TypeVar

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
from tensorkeep.arrays.elements import known_dtype, within_numpys_limits
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import ALL_BY_NAME, DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import IntegrityError
from tensorkeep.limits import ARENA_NBYTES, COPIED_BY_ONE_NBYTES, PACK_NBYTES
from tensorkeep.parallel import parallel_for_each
from tensorkeep.tensors.indexing import (
    Axis,
    CoverFault,
    Region,
    Selection,
    cover_fault,
    parse_index,
    run_of,
)
from tensorkeep.tensors.lazy._lazy import LazyTensor
from tensorkeep.tensors.readers import (
    RUN_LENGTH,
    PiecedReader,
    Planned,
    StoredPiece,
    TensorReader,
    joined_plan,
    put_block,
    run_of_blocks,
)
from tensorkeep.tensors.to_device import Block, gathering_device
from tensorkeep.texts import listed
from tensorkeep.transport import ByteRange, ByteSource, JoinedSource

Array = npt.NDArray[Any]
_T = TypeVar("_T")

_MAX_THREADS = 8
"""Pieces that are read or copied at once."""


class PlacedPiece(msgspec.Struct, frozen=True, eq=False):
    """A piece of a tensor, and the region that it holds.

    Attributes:
        region: The region.
        file: Name of its file, for messages.
        open: Returns the piece, with NumPy as its framework. Called on each read, from any thread. It must pickle if
            the tensor must.
    """

    region: Region
    file: str
    open: Callable[[], LazyTensor]

    @classmethod
    def of(cls, region: Region, file: str, lazy: LazyTensor) -> PlacedPiece:
        """Return a piece that is open already."""
        return cls(region, file, partial(_itself, lazy))


def _itself(lazy: LazyTensor) -> LazyTensor:
    return lazy


class AssembledReader:
    """Reads one tensor in pieces that do not overlap."""

    cast_to: DType | None = None
    """None: tensors have the dtype that they are stored in."""

    def __init__(
        self, shape: tuple[int, ...], placed: tuple[PlacedPiece, ...], path: str, framework: str, device: Any = "cpu"
    ) -> None:
        self._shape = shape
        self._placed = placed
        self._path = path
        self._target = (framework, device)

    def __reduce__(self) -> tuple[Any, ...]:
        return AssembledReader, (self._shape, self._placed, self._path, *self._target)

    def with_framework(self, framework: str, device: Any = "cpu") -> AssembledReader:
        """Return the same reader for another array library."""
        return AssembledReader(self._shape, self._placed, self._path, framework, device)

    @property
    def path(self) -> str:
        """The checkpoint, for messages."""
        return self._path

    @cached_property
    def adapter(self) -> DenseArrays:
        """The array library, imported on first use."""
        return adapter_for(*self._target)

    @property
    def placed(self) -> tuple[PlacedPiece, ...]:
        """The pieces, in C order of their first elements."""
        return self._placed

    @property
    def source(self) -> ByteSource | None:
        """Its bytes, joined; None if some piece is not a run of them."""
        return self.joined.source if self.joined else None

    def span_of(self, entry: TensorEntry) -> ByteRange | None:
        """Return the range of `source` with its bytes; None if `source` is None."""
        return self.joined.span_of(entry) if self.joined else None

    @cached_property
    def joined(self) -> TensorReader | None:
        """A reader of the whole as one range, if the pieces are consecutive runs; opening it opens all of them."""
        if any(run_of(piece.region, self._shape) is None for piece in self._placed):
            return None
        sources: list[tuple[ByteSource, ByteRange]] = []
        stored: list[StoredPiece] = []
        for piece in self._placed:
            lazy = piece.open()
            source, span = lazy.source, lazy.span
            if source is None or span is None:
                return None
            sources.append((source, span))
            stored.append(StoredPiece(lazy.name, getattr(lazy.reader, "unchecked", source), span, lazy.digest))
        is_checked = sources != [(piece.source, piece.span) for piece in stored]
        checked = JoinedSource(sources, self._path) if is_checked else None
        joined = JoinedSource([(piece.source, piece.span) for piece in stored], self._path)
        return PiecedReader(stored, joined, *self._target, checked)

    def read(self, name: str, entry: TensorEntry, selection: Selection) -> Any:
        """Read a part, from the pieces that hold some of it."""
        dtype = _dtype_of(name, entry)
        with within_numpys_limits(name, entry.shape):
            elements = selection.apply(self._block(dtype, selection))
        return self.adapter.from_elements(elements, dtype)

    def staged_block(self, name: str, entry: TensorEntry, selection: Selection) -> tuple[DeviceMemory, Block] | None:
        """Return the device that can copy a part by itself, and how to gather it; None to read it in another way."""
        if self.joined is not None:
            return self.joined.staged_block(name, entry, selection)
        dtype = _dtype_of(name, entry)
        device = gathering_device(self.adapter, dtype)
        if device is None or not selection.keeps_order:
            return None

        def read(index: tuple[int | slice, ...], into: memoryview) -> None:
            part = selection.part(index)
            block = np.frombuffer(into, dtype.bits_name).reshape(part.block_shape)
            for piece in self._parts(part):  # other threads gather other parts
                _put_part(block, piece)

        return device, Block(self._path, dtype, selection.block_shape, read)

    def read_run(self, name: str, entry: TensorEntry, start: int, stop: int) -> Any:
        """Read a run of elements."""
        dtype = _dtype_of(name, entry)
        elements = run_of_blocks(name, entry, start, stop, dtype.bits_name, lambda part: self._block(dtype, part))
        return self.adapter.from_elements(elements, dtype)

    def run_length(self, entry: TensorEntry) -> int:  # noqa: ARG002 - the protocol's
        """Return how many elements one `read_run` should take: about a MiB of any tensor."""
        return RUN_LENGTH

    def plan(self, entry: TensorEntry, selection: Selection) -> Planned:  # noqa: ARG002 - a reader of one tensor
        """Return what reading a part would read."""
        opened = [(part.piece.open(), part.selection) for part in self._parts(selection)]
        return joined_plan([lazy.reader.plan(lazy.entry, part) for lazy, part in opened], self._path)

    def load(self, entries: Mapping[str, TensorEntry]) -> dict[str, Any]:
        """Read the whole tensor."""
        if self.joined is not None:
            return self.joined.load(entries)
        loaded: dict[str, Any] = {}
        for name, entry in entries.items():
            dtype = _dtype_of(name, entry)
            with within_numpys_limits(name, entry.shape):
                block = np.empty(entry.shape, dtype.bits_name)
                _for_all(self._placed, partial(_put_whole, block), block)
            loaded[name] = self.adapter.from_elements(block, dtype)
        return loaded

    def view(self, name: str, entry: TensorEntry) -> Any | None:
        """Return the tensor over a mapping, if one mapping has all of it."""
        return self.joined.view(name, entry) if self.joined else None

    def place(self, tensor: Any) -> Any:
        """Move a tensor to the device."""
        return self.adapter.place({"": tensor})[""]

    def tensor_to_write(self, name: str, entry: TensorEntry, digest: bytes | None = None) -> TensorToWrite:
        """Describe the tensor for writing."""
        if self.joined is not None:
            return self.joined.tensor_to_write(name, entry, digest)
        dtype = known_dtype(name, entry)
        return StreamedTensor(
            dtype, entry.shape, entry.nbytes, lambda: self._buffers(name, entry, dtype), digest=digest
        )

    def _buffers(self, name: str, entry: TensorEntry, dtype: DType) -> Iterator[Buffer]:
        """Assemble the tensor part by part: small enough for memory, large enough for long runs of each piece."""
        reader = self.with_framework("numpy")
        beside = sum(piece.region.starts[0] == self._placed[0].region.starts[0] for piece in self._placed)
        for index in pieces(entry.shape, np.dtype(dtype.bits_name).itemsize, min(PACK_NBYTES * beside, ARENA_NBYTES)):
            yield from tensor_to_write(reader.read(name, entry, parse_index(index, entry.shape)), name).buffers()

    def _block(self, dtype: DType, selection: Selection) -> Array:
        """Return the block of a selection, of dtype `bits_name`."""
        block = np.empty(selection.block_shape, dtype.bits_name)
        _for_all(list(self._parts(selection)), partial(_put_part, block), block)
        return block

    def _parts(self, selection: Selection) -> Iterator[_Part]:
        """Give, for each piece, the part of a selection that it holds."""
        for piece in self._placed:
            cuts = [
                (bisect_left(axis, start), bisect_left(axis, stop))
                for axis, start, stop in zip(selection.axes, piece.region.starts, piece.region.stops, strict=True)
            ]
            if all(begin < end for begin, end in cuts):
                axes = tuple(
                    _moved(axis[begin:end], -start)
                    for axis, (begin, end), start in zip(selection.axes, cuts, piece.region.starts, strict=True)
                )
                into = tuple(slice(begin, end) for begin, end in cuts)
                yield _Part(piece, Selection(piece.region.shape, axes, (slice(None),) * len(axes)), into)


class _Part(msgspec.Struct, frozen=True, eq=False):
    """The part of a selection that one piece holds: its elements, and their place in the block."""

    piece: PlacedPiece
    selection: Selection
    into: tuple[slice, ...]


def _for_all(parts: Collection[_T], put: Callable[[_T], None], block: Array) -> None:
    """Copy all parts into a block, in parallel if it is large enough to be worth threads."""
    parallel_for_each(
        parts, put, n_threads=_MAX_THREADS if len(parts) > 1 and block.nbytes >= COPIED_BY_ONE_NBYTES else 1
    )


def _put_part(block: Array, part: _Part) -> None:
    lazy = part.piece.open()
    into = _at(block, part.into)
    mapped = lazy.view()
    if mapped is None:
        into[...] = lazy.reader.read(lazy.name, lazy.entry, part.selection).view(block.dtype)
    else:
        put_block(into, mapped.view(block.dtype), part.selection)


def _put_whole(block: Array, piece: PlacedPiece) -> None:
    put_block(_at(block, piece.region.index), piece.open().load().view(block.dtype), None)


def _at(block: Array, place: tuple[slice, ...]) -> Array:
    """Return a part of a block, as an array even if it has no dimensions."""
    index: Any = (*place, ...)
    part: Array = block[index]
    return part


def _moved(axis: Axis, by: int) -> Axis:
    return range(axis.start + by, axis.stop + by, axis.step) if isinstance(axis, range) else axis + by


def _dtype_of(name: str, entry: TensorEntry) -> DType:
    return ALL_BY_NAME.get(entry.dtype) or known_dtype(name, entry)


def assemble(
    name: str,
    dtype: str,
    shape: tuple[int, ...],
    placed: Iterable[PlacedPiece],
    *,
    path: str,
    framework: str,
    device: Any = "cpu",
) -> LazyTensor:
    """Make one tensor of its pieces, without opening them. Of replicas, which hold the same region, one is used."""
    first_of = {piece.region: piece for piece in reversed([piece for piece in placed if piece.region.n_elements])}
    ordered = tuple(first_of[region] for region in sorted(first_of))
    fault = cover_fault(shape, first_of)
    if fault is not None:
        _refuse(fault, name, shape, ordered, path)
    known = ALL_BY_NAME.get(dtype)
    nbytes = known.nbytes(prod(shape)) if known else sum(piece.open().nbytes for piece in ordered)
    entry = TensorEntry(dtype, shape, (0, nbytes))
    return LazyTensor(name, entry, AssembledReader(shape, ordered, path, framework, device))


def _refuse(
    fault: CoverFault, name: str, shape: tuple[int, ...], placed: tuple[PlacedPiece, ...], path: str
) -> NoReturn:
    near = [piece for piece in placed if fault.kind != "missing" and fault.region.common(piece.region)]
    what = {"missing": "is missing", "overlap": "is in two pieces", "outside": "is outside its shape"}[fault.kind]
    files = dict.fromkeys(f"{piece.region} in {piece.file}" for piece in near or placed)
    raise IntegrityError(
        f"a part of tensor `{name}` {what}: {fault.region} of {list(shape)}",
        path=path,
        tensor=name,
        expected="pieces that hold each element once",
        found=listed(files) or "no pieces",
        hint="A file may be lost, or left over from another save. Get all files of the checkpoint again",
    )

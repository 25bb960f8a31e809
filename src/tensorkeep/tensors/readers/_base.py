"""The interface of a lazy tensor's reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TypeGuard

from tensorkeep.arrays import DenseArrays, DeviceMemory, Extent, TensorToWrite
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import BY_NAME, DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import DtypeError
from tensorkeep.limits import PACK_NBYTES
from tensorkeep.tensors.indexing import Selection, c_strides
from tensorkeep.tensors.to_device import Block, Staged
from tensorkeep.transport import ByteRange, ByteSource

RUN_LENGTH = PACK_NBYTES // 4
"""Elements to read at once when a large tensor is streamed; whole groups of packed ones."""


Planned = tuple[ByteSource, list[list[ByteRange]]]


class Reader(Protocol):
    """Makes tensors of one library from one source: as they are stored, cast, or gathered.

    Usable from several threads and after a fork; picklable if the source is a file. Readers can be keys of a dict:
    tensors of equal readers are loaded together.
    """

    @property
    def source(self) -> ByteSource | None:
        """The source of its tensors' bytes; None if they are nowhere in the form in which they are read."""

    @property
    def path(self) -> str | None:
        """The file or checkpoint that its tensors come from, for messages; None if they come from several."""

    @property
    def cast_to(self) -> DType | None:
        """The dtype of its tensors; None for the one that they are stored in."""

    @property
    def adapter(self) -> DenseArrays:
        """The array library."""

    def with_framework(self, framework: str, device: Any = "cpu") -> Reader:
        """Return the same reader for another array library."""

    def span_of(self, entry: TensorEntry) -> ByteRange | None:
        """Return the range of `source` with a tensor's bytes; None if `source` is None."""

    def read(self, name: str, entry: TensorEntry, selection: Selection) -> Any:
        """Read a part of a tensor."""

    def plan(self, entry: TensorEntry, selection: Selection) -> Planned:
        """Return what reading a part of a tensor would read."""

    def read_run(self, name: str, entry: TensorEntry, start: int, stop: int) -> Any:
        """Read a run of elements, counted in C order; for streaming a large tensor in bounded memory."""

    def run_length(self, entry: TensorEntry) -> int:
        """Return how many elements each `read_run` should read of a tensor that is streamed."""

    def load(self, entries: Mapping[str, TensorEntry]) -> dict[str, Any]:
        """Read whole tensors."""

    def view(self, name: str, entry: TensorEntry) -> Any | None:
        """Return a whole tensor on the CPU over the mapping that this reader keeps; None without one.

        Unlike `load`, this makes no new mapping, so it can be called for 100,000 tensors; but views of one tensor see
        each other's writes, and so does `read`.
        """

    def place(self, tensor: Any) -> Any:
        """Move a tensor to the device."""

    def tensor_to_write(self, name: str, entry: TensorEntry, digest: bytes | None = None) -> TensorToWrite:
        """Describe a tensor for writing."""


class BlockReader(Reader, Protocol):
    """A reader of tensors in blocks of quantized numbers, which are no elements: it reads them in two other forms."""

    def dequantized(self, name: str, entry: TensorEntry, dtype: DType) -> Reader:
        """Return a reader of the numbers, for the same entry; DtypeError if they are not known."""

    def raw(self, entry: TensorEntry) -> tuple[TensorEntry, Reader]:
        """Return the entry of the blocks as rows of bytes, and their reader."""


class StagedReader(Reader, Protocol):
    """A reader of tensors that a device can copy by itself."""

    def staged(self, entries: Mapping[str, TensorEntry]) -> tuple[DeviceMemory, Staged] | None:
        """Return the device, and what to load; None to load tensors in another way."""


def reads_staged(reader: Reader) -> TypeGuard[StagedReader]:
    """Whether a reader is a `StagedReader`."""
    return hasattr(reader, "staged")


class GatheringReader(Reader, Protocol):
    """A reader of parts that are gathered, or computed, in the buffers that a device copies from."""

    def staged_block(self, name: str, entry: TensorEntry, selection: Selection) -> tuple[DeviceMemory, Block] | None:
        """Return the device, and how to read a part; None to read it in another way."""


def gathers(reader: Reader) -> TypeGuard[GatheringReader]:
    """Whether a reader is a `GatheringReader`."""
    return hasattr(reader, "staged_block")


def reads_blocks(reader: Reader) -> TypeGuard[BlockReader]:
    """Whether a reader is a `BlockReader`."""
    return hasattr(reader, "dequantized")


class StoredTensor(TensorToWrite, frozen=True):
    """A tensor of a file, whose bytes can be copied to another file as they are.

    Attributes:
        source: The file.
        span: Half-open range of bytes of the file.
        digest: The BLAKE3 digest that the file has for them; None if it has none.
    """

    source: ByteSource
    span: ByteRange
    digest: bytes | None = None

    def extent(self) -> Extent | None:
        """Return where it is in the file."""
        return stored_extent(self.source, self.span.start, self.span.stop, c_strides(self.shape))

    def buffers(self) -> Iterator[Buffer]:
        """Yield its bytes in pieces of bounded size."""
        return stored_pieces(self.source, self.span)

    def memory(self, start: int, stop: int) -> Iterator[Buffer]:
        """Yield bytes of the file."""
        return stored_pieces(self.source, ByteRange(start, stop))


def writable_dtype(name: str, dtype: DType) -> DType:
    """Return the dtype of a tensor that is about to be written; refuse one that safetensors lacks."""
    if dtype.name in BY_NAME:
        return dtype
    raise DtypeError(
        f"tensor `{name}` has a dtype that the format cannot hold",
        tensor=name,
        expected="one of " + ", ".join(BY_NAME),
        found=f"{dtype.name} ({dtype.torch})",
        hint="Load it with torch, and save torch.view_as_real(tensor) or tensor.to(torch.complex64)",
    )


def stored_pieces(source: ByteSource, span: ByteRange) -> Iterator[Buffer]:
    """Give bytes in pieces of bounded size, each valid for as long as it is used."""
    for start in range(span.start, span.stop, PACK_NBYTES):
        yield source.read(ByteRange(start, min(start + PACK_NBYTES, span.stop)))


def stored_extent(
    source: ByteSource,
    start: int,
    stop: int,
    strides: tuple[int, ...],
    *,
    is_conj: bool = False,
    is_neg: bool = False,
) -> Extent | None:
    """Return where a tensor is in a source, so that those of one file that share bytes are found like any others."""
    return Extent(f"source {id(source)}", start, stop, strides, is_conj, is_neg) if start < stop else None

"""What a lazy tensor reads with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from tensorkeep.arrays import ArrayAdapter, Extent, HostTensor
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import DType
from tensorkeep.entries import TensorEntry
from tensorkeep.limits import PACK_NBYTES
from tensorkeep.tensors.indexing import Selection
from tensorkeep.transport import ByteRange, ByteSource

__all__ = ["RUN_LENGTH", "Planned", "Reader", "StoredTensor", "stored_extent", "stored_pieces"]

RUN_LENGTH = PACK_NBYTES // 4
"""Elements to take at once from a tensor that is passed through; whole groups of packed ones."""


Planned = tuple[ByteSource, list[list[ByteRange]]]


class Reader(Protocol):
    """Makes tensors of one library out of one source: as they are stored, converted, or gathered.

    Usable from several threads, after a fork, and (where its source is a file) pickled. Readers can be keys of a
    dict: tensors of equal ones are loaded together.
    """

    @property
    def source(self) -> ByteSource | None:
        """Where the bytes of its tensors are; None where they stand nowhere as they are read."""

    @property
    def cast_to(self) -> DType | None:
        """The dtype that its tensors have; None for the one that they are stored in."""

    @property
    def adapter(self) -> ArrayAdapter:
        """The array library."""

    def with_framework(self, framework: str, device: Any = "cpu") -> Reader:
        """Return a reader of the same that gives the tensors of another array library.

        Args:
            framework: One of `tensorkeep.arrays.FRAMEWORKS`.
            device: Where tensors go.
        """

    def span_of(self, entry: TensorEntry) -> ByteRange | None:
        """Return where a tensor's bytes stand in `source`; None where that is None.

        Args:
            entry: The tensor.
        """

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
            LimitError: If the shape is more than NumPy can hold, or the part is too large for what it is made of.
            TransportError: If the bytes cannot be read.
        """

    def plan(self, entry: TensorEntry, selection: Selection) -> Planned:
        """Return what reading a part of a tensor would read.

        Args:
            entry: The tensor.
            selection: The part.

        Returns:
            The source, and ranges of it, those together that are read together.
        """

    def read_run(self, name: str, entry: TensorEntry, start: int, stop: int) -> Any:
        """Read a run of elements, for passing through a large tensor.

        Args:
            name: The tensor's name, for messages.
            entry: The tensor.
            start: First element, counted in C order.
            stop: One past the last.

        Returns:
            A tensor of shape (stop - start,) that owns its memory.

        Raises:
            DtypeError: If the dtype is unknown here or to the library.
            TransportError: If the bytes cannot be read.
        """

    def run_length(self, entry: TensorEntry) -> int:
        """Return how many elements one `read_run` should take of a tensor that is passed through.

        Args:
            entry: The tensor.
        """

    def load(self, entries: Mapping[str, TensorEntry]) -> dict[str, Any]:
        """Read whole tensors.

        Args:
            entries: Name to entry, in the order of the bytes in the file; they may overlap.

        Returns:
            Name to tensor, in the same order. Each is writable and shares memory with no other; writing never reaches
            the file.

        Raises:
            DtypeError: If a dtype is unknown here or to the library.
            LimitError: If a tensor has a shape that NumPy cannot hold, or is too large for what it is made of.
            TransportError: If the bytes cannot be read.
        """

    def view(self, name: str, entry: TensorEntry) -> Any | None:
        """Give a whole tensor on the CPU over the mapping that this reader keeps.

        Unlike `load`, this maps nothing new, so it can be called for 100,000 tensors; but views of one tensor see
        each other's writes, and so does `read`.

        Args:
            name: The tensor's name.
            entry: The tensor.

        Returns:
            The tensor; None where nothing is mapped, or the mapping does not hold the tensor as it is read.

        Raises:
            DtypeError: If the dtype is unknown here or to the library.
            TransportError: If the source is closed.
        """

    def place(self, tensor: Any) -> Any:
        """Move a tensor to the device.

        Args:
            tensor: A tensor on the CPU.

        Returns:
            The tensor where it is wanted.
        """

    def host_tensor(self, name: str, entry: TensorEntry, digest: bytes | None = None) -> HostTensor:
        """Describe a tensor for writing.

        Args:
            name: Its name, for messages.
            entry: The tensor.
            digest: BLAKE3 of its bytes, where its file promises one.

        Returns:
            The description: a `StoredTensor` where its bytes can be copied as they are.

        Raises:
            DtypeError: If the format has no such dtype.
            LimitError: If the tensor is too large for what it is made of.
        """


class StoredTensor(HostTensor, frozen=True, kw_only=True):
    """A tensor on its way from one file to another, whose bytes may be copied as they are.

    Attributes:
        source: Where the bytes are.
        span: Half-open range of the source that they fill.
        digest: BLAKE3 of the bytes, as their file promises it, or None where it promises none.
    """

    source: ByteSource
    span: ByteRange
    digest: bytes | None = None


def stored_pieces(source: ByteSource, span: ByteRange) -> Iterator[Buffer]:
    """Give bytes as the writer of a file wants them: in pieces that stay valid, of bounded size.

    Args:
        source: Where they are.
        span: Half-open, inside the source.

    Yields:
        Pieces that belong to the caller.

    Raises:
        TransportError: If they cannot be read.
    """
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
    """Say where a tensor lies in a source, so that tensors of one file that share bytes are found like any others.

    Args:
        source: Where its bytes are.
        start: First of them.
        stop: One past the last.
        strides: Elements from one entry of each dimension to the next.
        is_conj: Whether it stands for the conjugates of what is there.
        is_neg: Whether it stands for their negatives.

    Returns:
        Its place; None where it has no elements.
    """
    return Extent(f"source {id(source)}", start, stop, strides, is_conj, is_neg) if start < stop else None

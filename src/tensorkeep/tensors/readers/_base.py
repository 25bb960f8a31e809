"""What a lazy tensor reads with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from tensorkeep.arrays import DenseArrays, Extent, TensorToWrite
from tensorkeep.buffers import Buffer
from tensorkeep.dtypes import DType
from tensorkeep.entries import TensorEntry
from tensorkeep.limits import PACK_NBYTES
from tensorkeep.tensors.indexing import Selection
from tensorkeep.transport import ByteRange, ByteSource

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
    def adapter(self) -> DenseArrays:
        """The array library."""

    def with_framework(self, framework: str, device: Any = "cpu") -> Reader:
        """Return a reader of the same that gives the tensors of another array library."""

    def span_of(self, entry: TensorEntry) -> ByteRange | None:
        """Return where a tensor's bytes stand in `source`; None where that is None."""

    def read(self, name: str, entry: TensorEntry, selection: Selection) -> Any:
        """Read a part of a tensor."""

    def plan(self, entry: TensorEntry, selection: Selection) -> Planned:
        """Return what reading a part of a tensor would read."""

    def read_run(self, name: str, entry: TensorEntry, start: int, stop: int) -> Any:
        """Read a run of elements, for passing through a large tensor."""

    def run_length(self, entry: TensorEntry) -> int:
        """Return how many elements one `read_run` should take of a tensor that is passed through."""

    def load(self, entries: Mapping[str, TensorEntry]) -> dict[str, Any]:
        """Read whole tensors."""

    def view(self, name: str, entry: TensorEntry) -> Any | None:
        """Give a whole tensor on the CPU over the mapping that this reader keeps.

        Unlike `load`, this maps nothing new, so it can be called for 100,000 tensors; but views of one tensor see
        each other's writes, and so does `read`.
        """

    def place(self, tensor: Any) -> Any:
        """Move a tensor to the device."""

    def tensor_to_write(self, name: str, entry: TensorEntry, digest: bytes | None = None) -> TensorToWrite:
        """Describe a tensor for writing."""


class StoredTensor(TensorToWrite, frozen=True, kw_only=True):
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
    """Give bytes as the writer of a file wants them: in pieces that stay valid, of bounded size."""
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
    """Say where a tensor lies in a source, so that tensors of one file that share bytes are found like any others."""
    return Extent(f"source {id(source)}", start, stop, strides, is_conj, is_neg) if start < stop else None

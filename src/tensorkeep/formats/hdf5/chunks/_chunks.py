"""`Hdf5Chunks`: the chunks of one dataset, whose index is read when the first of its elements are."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import prod
from typing import Any

import msgspec

from tensorkeep.buffers import Buffer
from tensorkeep.errors import FormatError, LimitError, TensorkeepError
from tensorkeep.formats._chunks import Checksum, StoredChunk
from tensorkeep.formats.hdf5._layout import Chunked
from tensorkeep.formats.hdf5.chunks._arrays import Entry
from tensorkeep.formats.hdf5.chunks._filters import FLETCHER, Filter, min_stored_nbytes, unfilter
from tensorkeep.formats.hdf5.chunks._index import Grid, read_index
from tensorkeep.formats.hdf5.structures import CHECKSUM_NBYTES, FLETCHER32, Blocks, Dialect
from tensorkeep.limits import MAX_DEFLATE_RATIO, MAX_EXPANDED_NBYTES
from tensorkeep.locks import ReadLock
from tensorkeep.transport import ByteRange, ByteSource


class ChunkedDataset(msgspec.Struct, frozen=True):
    """What the header of a dataset says of its chunks.

    Attributes:
        name: The name of the dataset, for messages.
        dialect: What every structure of the file depends on.
        layout: Where the index is; None if nothing was ever written.
        extents: Elements along each dimension now.
        most: Elements along each dimension at most; None without a bound.
        element: Dimensions of each element itself.
        itemsize: Bytes of one element.
        filters: What chunks went through, in order.
        fill: The bytes of an element that was never written; empty for zeros.
        is_big_endian: Whether numbers have their highest byte first.
    """

    name: str
    dialect: Dialect
    layout: Chunked | None
    extents: tuple[int, ...]
    most: tuple[int | None, ...]
    element: tuple[int, ...]
    itemsize: int
    filters: tuple[Filter, ...]
    fill: bytes
    is_big_endian: bool


class Hdf5Chunks:
    """See `tensorkeep.formats.Chunks`."""

    def __init__(self, source: ByteSource, dataset: ChunkedDataset) -> None:
        self.source = source
        self._dataset = dataset
        layout = dataset.layout
        extents = layout.shape if layout else tuple(extent or 1 for extent in dataset.extents)
        self.shape = extents + dataset.element
        self.is_big_endian = dataset.is_big_endian
        self.fill = dataset.fill
        self.fill_shape = dataset.element
        self._nbytes = prod(extents) * dataset.itemsize
        self._by_left_out: dict[int, tuple[bool, int]] = {}
        self._stored: Mapping[tuple[int, ...], StoredChunk] | None = None
        self._lock = ReadLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Hdf5Chunks, (self.source, self._dataset)

    def stored(self) -> Mapping[tuple[int, ...], StoredChunk]:
        """Return the chunks that are stored."""
        with self._lock:
            if self._stored is None:
                try:
                    self._stored = self._read()
                except TensorkeepError as error:
                    raise error.with_fields(path=self.source.name, tensor=self._dataset.name) from None
            return self._stored

    def _read(self) -> Mapping[tuple[int, ...], StoredChunk]:
        dataset, layout = self._dataset, self._dataset.layout
        if layout is None:
            return {}
        grid = Grid(
            tuple(-(-extent // step) for extent, step in zip(dataset.extents, layout.shape, strict=True)),
            tuple(
                None if most is None else -(-most // step)
                for most, step in zip(dataset.most, layout.shape, strict=True)
            ),
        )
        index = Blocks(self.source).run(read_index(dataset.dialect, layout, grid, self._nbytes))
        beside = (0,) * len(dataset.element)
        stored = {place + beside: self._chunk(place, entry) for place, entry in index.items()}
        spans = sorted((chunk.span.start, chunk.span.stop) for chunk in stored.values())
        if any(before[1] > after[0] for before, after in pairwise(spans)):
            raise FormatError("chunks overlap in the file")
        self._refuse_large(len(stored) * self._nbytes, sum(stop - start for start, stop in spans))
        return stored

    def _refuse_large(self, nbytes: int, stored_nbytes: int) -> None:
        """Refuse chunks that take far more memory than any real data: one of equal elements may take 21 bytes."""
        limit = MAX_EXPANDED_NBYTES + MAX_DEFLATE_RATIO * stored_nbytes
        if nbytes > limit:
            raise LimitError(
                "the chunks of a dataset are far larger than their bytes in the file",
                expected=f"at most {limit:,} bytes, from {stored_nbytes:,} in the file",
                found=f"{nbytes:,} bytes",
            )

    def _chunk(self, place: tuple[int, ...], entry: Entry) -> StoredChunk:
        dataset, layout = self._dataset, self._dataset.layout
        left_out = entry.left_out
        if layout and not layout.filters_edges and self._is_at_an_edge(place):
            left_out = (1 << len(dataset.filters)) - 1
        nbytes = self._nbytes if entry.nbytes is None else entry.nbytes
        is_plain, least = self._stored_as(left_out)
        if nbytes < least or (is_plain and nbytes > least):
            raise FormatError(
                "a chunk has another size than its shape",
                expected=f"{self._nbytes:,} bytes",
                found=f"{nbytes:,} bytes in the file",
            )
        return StoredChunk(dataset.dialect.span(entry.address, nbytes), is_plain, left_out)

    def _stored_as(self, left_out: int) -> tuple[bool, int]:
        """Say whether chunks without some filters are stored plainly, and how many bytes they take at least."""
        known = self._by_left_out.get(left_out)
        if known is None:
            applied = tuple(each for at, each in enumerate(self._dataset.filters) if not left_out >> at & 1)
            known = not applied, min_stored_nbytes(applied, self._nbytes)
            self._by_left_out[left_out] = known
        return known

    def _is_at_an_edge(self, place: tuple[int, ...]) -> bool:
        return any(
            (at + 1) * step > extent
            for at, step, extent in zip(place, self.shape, self._dataset.extents, strict=False)
        )

    def unpack(self, chunk: StoredChunk, data: Buffer) -> Buffer:
        """Return the elements of a chunk."""
        try:
            return unfilter(data, self._dataset.filters, chunk.mark, self._nbytes)
        except TensorkeepError as error:
            raise error.with_fields(path=self.source.name, tensor=self._dataset.name) from None

    def checksums(self) -> list[Checksum]:
        """Return the checksums of stored chunks, where they are the last thing that was done to them."""
        filters = self._dataset.filters
        if not filters or filters[-1].number != FLETCHER:
            return []
        spans = [chunk.span for chunk in self.stored().values() if not chunk.mark >> len(filters) - 1 & 1]
        ends = [bytearray(CHECKSUM_NBYTES) for _ in spans]
        self.source.read_into(
            (span.stop - CHECKSUM_NBYTES, memoryview(end)) for span, end in zip(spans, ends, strict=True)
        )
        return [
            Checksum(FLETCHER32, bytes(end), ByteRange(span.start, span.stop - CHECKSUM_NBYTES))
            for span, end in zip(spans, ends, strict=True)
        ]

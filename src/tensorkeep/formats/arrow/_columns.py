"""Where the elements of each column are, over all batches. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat

import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.errors import FormatError, LimitError, UnsupportedError
from tensorkeep.formats.arrow._buffers import CODECS, MAX_RATIOS, Codec
from tensorkeep.formats.arrow._flatbuffers import Table
from tensorkeep.formats.arrow._layout import Layout, Leaf, LeafPlace
from tensorkeep.formats.arrow._messages import Message
from tensorkeep.limits import MAX_I64
from tensorkeep.transport import ByteRange

_BIT = "BOOL"


class Part(msgspec.Struct, frozen=True):
    """A buffer of a column in one batch.

    Attributes:
        span: Its bytes in the file.
        nbytes: Bytes of its elements, decompressed; -1 if only the buffer says so.
        n_elements: How many elements these are.
        codec: How it is compressed; None if it is not.
    """

    span: ByteRange
    nbytes: int
    n_elements: int
    codec: Codec | None


class Column(msgspec.Struct, frozen=True):
    """One column of the file.

    Attributes:
        name: Its name; after dots, fields of structs.
        leaf: What it is.
        n_rows: Rows in all batches.
        n_nulls: How many of its elements are missing.
        parts: Its elements in each batch; of strings, their offsets.
        texts: The bytes of strings in each batch.
    """

    name: str
    leaf: Leaf
    n_rows: int
    n_nulls: int
    parts: tuple[Part, ...]
    texts: tuple[Part, ...]

    @property
    def is_bits(self) -> bool:
        """Whether elements are bits."""
        return self.leaf.dtype == _BIT


def columns_of(layout: Layout, batches: Iterable[Message]) -> list[Column]:
    """Return all columns that can be read."""
    read = [_Batch(layout, message) for message in batches]
    with_nulls = [batch for batch in read if batch.has_nulls]
    n_rows = sum(batch.n_rows for batch in read)
    parts = zip(*[batch.elements(layout) for batch in read], strict=True) if read else repeat(())
    return [
        Column(
            place.name,
            place.leaf,
            n_rows,
            sum(batch.count_nulls(place) for batch in with_nulls) if with_nulls else 0,
            elements,
            tuple([batch.text(place) for batch in read]) if place.leaf.text_width else (),
        )
        for place, elements in zip(layout.leaves, parts, strict=False)
    ]


class _Batch:
    """One batch, with everything checked that all columns share."""

    def __init__(self, layout: Layout, message: Message) -> None:
        header = message.header
        self.n_rows = header.number(0, "q")
        self._nodes = header.pairs(1)
        self._buffers = header.pairs(2)
        self._body = message.body
        self._codec = _codec_of(header.table(3))
        self._starts = self._placed(layout, [count for (count,) in header.structs(4, "<q")])
        self._check_nodes(layout)
        self._check_buffers()
        self.has_nulls = bool(self._nodes[:, 1].any())
        self._sizes: dict[int, tuple[int, int]] = {}

    def _placed(self, layout: Layout, n_more: list[int]) -> npt.NDArray[np.int64]:
        """Return the number of the first buffer of each node."""
        counts = np.array([node.n_buffers for node in layout.nodes], np.int64)
        views = [place for place, node in enumerate(layout.nodes) if node.is_view]
        for place, n_views in zip(views, n_more, strict=False):
            counts[place] += min(max(n_views, 0), len(self._buffers) + 1)
        count = int(counts.sum())
        if len(self._nodes) != len(layout.nodes) or len(self._buffers) != count:
            raise FormatError(
                "a batch does not have the columns of the schema",
                expected=f"{len(layout.nodes):,} fields and {count:,} buffers",
                found=f"{len(self._nodes):,} and {len(self._buffers):,}",
            )
        starts: npt.NDArray[np.int64] = counts.cumsum() - counts
        return starts

    def _check_nodes(self, layout: Layout) -> None:
        if not 0 <= self.n_rows <= MAX_I64:
            raise FormatError("a batch has an impossible number of rows", found=f"{self.n_rows:,}")
        lengths, n_nulls = self._nodes.T
        per_row = np.array([-1 if node.per_row is None else node.per_row for node in layout.nodes], np.int64)
        is_large = self.n_rows > 0 and (per_row > MAX_I64 // self.n_rows)
        is_wrong = (per_row >= 0) & (is_large | (lengths != per_row * self.n_rows))
        if is_wrong.any():
            place = int(is_wrong.argmax())
            raise FormatError(
                "a column has another number of elements than its batch",
                expected=f"{int(per_row[place]) * self.n_rows:,}",
                found=f"{int(lengths[place]):,}",
            )
        is_impossible = (n_nulls < 0) | (n_nulls > lengths)
        if is_impossible.any():
            length, n_missing = self._nodes[is_impossible.argmax()].tolist()
            raise FormatError("a column has an impossible number of nulls", found=f"{n_missing:,} of {length:,}")

    def _check_buffers(self) -> None:
        nbytes = len(self._body)
        starts, lengths = self._buffers.T
        if ((starts < 0) | (lengths < 0) | (lengths > nbytes - starts)).any():
            raise FormatError("a buffer is outside its batch", expected=f"{nbytes:,} bytes")
        filled = self._buffers[lengths > 0]
        ordered = filled[filled[:, 0].argsort()]
        if (ordered[:-1].sum(axis=1) > ordered[1:, 0]).any():
            raise FormatError("two buffers of a batch overlap")

    def count_nulls(self, place: LeafPlace) -> int:
        return sum(int(self._nodes[place.first + node, 1]) for node in place.leaf.nodes)

    def elements(self, layout: Layout) -> list[Part]:
        """Return where the elements of each column are; of strings, their offsets."""
        buffers = self._buffers[self._starts[layout.own_nodes] + 1].tolist()
        return [
            self._part(place, offset, length, *self._size(place.leaf))
            for place, (offset, length) in zip(layout.leaves, buffers, strict=True)
        ]

    def _size(self, leaf: Leaf) -> tuple[int, int]:
        """Return how many bytes and elements a column has; of strings, of their offsets."""
        size = self._sizes.get(id(leaf))
        if size is None:
            size = self._sizes[id(leaf)] = self._measure(leaf)
        return size

    def _measure(self, leaf: Leaf) -> tuple[int, int]:
        n_elements = leaf.rows.per_row * self.n_rows
        if leaf.text_width:
            return leaf.text_width * (n_elements + 1) if n_elements else 0, n_elements
        if leaf.dtype == _BIT:
            return -(-n_elements // 8), n_elements
        return ALL_BY_NAME[leaf.dtype or ""].nbytes(n_elements), n_elements

    def text(self, place: LeafPlace) -> Part:
        """Return where the bytes of strings are."""
        number = self._starts[place.first + place.leaf.nodes[-1]] + 2
        offset, length = self._buffers[number].tolist()
        return self._part(place, offset, length, -1 if self._codec and length else length, 0)

    def _part(self, place: LeafPlace, offset: int, length: int, nbytes: int, n_elements: int) -> Part:
        start = self._body.start + offset
        if self._codec and nbytes:
            if nbytes > MAX_RATIOS[self._codec] * length:
                raise LimitError(
                    "a buffer is declared larger than its bytes can decompress to",
                    tensor=place.name,
                    expected=f"at most {MAX_RATIOS[self._codec]:,} times {length:,} bytes",
                    found=f"{nbytes:,}",
                )
            return Part(ByteRange(start, start + length), nbytes, n_elements, self._codec)
        if length < nbytes:
            raise FormatError(
                f"a buffer of column `{place.name}` is too short",
                tensor=place.name,
                expected=f"{nbytes:,} bytes for {n_elements:,} elements",
                found=f"{length:,}",
            )
        return Part(ByteRange(start, start + nbytes), nbytes, n_elements, None)


def _codec_of(compression: Table | None) -> Codec | None:
    if compression is None:
        return None
    codec, method = compression.number(0, "b"), compression.number(1, "b")
    if method or not 0 <= codec < len(CODECS):
        raise UnsupportedError("a batch is compressed in an unknown way", found=f"codec {codec}, method {method}")
    return CODECS[codec]

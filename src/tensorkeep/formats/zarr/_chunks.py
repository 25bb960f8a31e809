"""`ZarrChunks`: the chunks of one array, each found under its key when it is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Final, Protocol

from tensorkeep.buffers import Buffer
from tensorkeep.digests import crc32c
from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.errors import FormatError, IntegrityError, LimitError, TensorkeepError
from tensorkeep.formats._chunks import Checksum, StoredChunk
from tensorkeep.formats._zstd import unpack_zstd, unpack_zstd_into
from tensorkeep.formats.zarr._array import ArrayLayout
from tensorkeep.formats.zarr._coding import Shard
from tensorkeep.formats.zarr._shard import chunk_in, index_span, parse_index
from tensorkeep.limits import MAX_EXPANDED_NBYTES, MAX_INFLATION
from tensorkeep.locks import ReadLock
from tensorkeep.transport import ByteRange, ByteSource

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CRC_NBYTES: Final = 4
_MAX_DIGITS: Final = 19
_IN_SHARD: Final = 1
"""Mark of a chunk whose bytes are a whole shard, with the index."""


class ZarrStore(Protocol):
    """Keys and values.

    Attributes:
        source: The bytes of all values.
        n_keys: How many keys there are at most.
    """

    @property
    def source(self) -> ByteSource: ...

    @property
    def n_keys(self) -> int: ...

    def find(self, key: str) -> ByteRange | None:
        """Return where a value is in the source; None if there is no such key."""

    def keys_below(self, name: str) -> Iterator[str]:
        """Yield all keys that begin with a name and a slash."""

    def stored_nbytes(self, keys: Iterable[str]) -> int:
        """Return the bytes of all files, or of the ones with these keys; the first call may open them."""


class ZarrChunks:
    """See `tensorkeep.formats.Chunks`; if it must be complete, a chunk that is not stored is an error.

    The dtype of its layout is in the dtype table, and all of its coding is read.
    """

    fill = b""
    fill_shape: tuple[int, ...] = ()

    def __init__(self, store: ZarrStore, name: str, layout: ArrayLayout, *, is_complete: bool) -> None:
        self._arguments = (store, name, layout, is_complete)
        self._store = store
        self._name = name
        self._coding = layout.coding
        self.source = store.source
        self.shape = layout.chunk
        self.is_big_endian = layout.coding.is_big_endian
        self._nbytes = ALL_BY_NAME[layout.dtype or ""].nbytes(prod(layout.chunk))
        self._stored: _Places | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, self._arguments

    def stored(self) -> Mapping[tuple[int, ...], StoredChunk]:
        """Return the chunks that are stored, after refusing an array that is too large for its files."""
        if self._stored is None:
            store, name, layout, is_complete = self._arguments
            dtype = ALL_BY_NAME[layout.dtype or ""]
            self._refuse_large("a chunk", self._nbytes)
            self._refuse_large("the array", dtype.nbytes(prod(layout.shape)))
            self._stored = _Places(store, name, layout, self._nbytes, is_complete=is_complete)
        return self._stored

    def keys(self) -> Iterator[str]:
        """Yield the keys of all chunks, or of the shards that hold them."""
        coding, shape = self._coding, self._arguments[2].shape
        steps = coding.shard.shape if coding.shard else self.shape
        grid = product(*(range(-(-extent // step)) for extent, step in zip(shape, steps, strict=True)))
        return (coding.key_of(self._name, place) for place in grid)

    def _refuse_large(self, what: str, nbytes: int) -> None:
        if nbytes <= MAX_EXPANDED_NBYTES:
            return
        stored_nbytes = self._store.stored_nbytes(self.keys())
        limit = max(MAX_EXPANDED_NBYTES, MAX_INFLATION * stored_nbytes)
        if nbytes > limit:
            raise LimitError(
                f"{what} is far larger than the files",
                path=self.source.name,
                tensor=self._name,
                expected=f"at most {limit:,} bytes, from {stored_nbytes:,} in the files",
                found=f"{nbytes:,} bytes",
            )

    def unpack(self, chunk: StoredChunk, data: Buffer) -> Buffer:
        """Return the elements of a chunk."""
        try:
            return self._unpacked(memoryview(data), is_shard=chunk.mark == _IN_SHARD)
        except TensorkeepError as error:
            raise error.with_fields(path=self.source.name, tensor=self._name) from None

    def unpack_into(self, chunk: StoredChunk, into: memoryview) -> bool:
        """Unpack a chunk into memory, unless it is in a shard with its index or has a checksum."""
        if chunk.mark == _IN_SHARD or self._coding.has_checksum or not self._coding.is_compressed:
            return False
        try:
            unpack_zstd_into(self.source.pieces(chunk.span), into)
        except TensorkeepError as error:
            raise error.with_fields(path=self.source.name, tensor=self._name) from None
        return True

    def _unpacked(self, data: memoryview, *, is_shard: bool) -> Buffer:
        shard = self._coding.shard
        if is_shard and shard is not None:
            index = index_span(shard, 1, len(data))
            inner = chunk_in(parse_index(data[index.start : index.stop], shard, len(data)), 0)
            if inner is None:
                return self._zeros()
            data = data[inner.start : inner.stop]
        if self._coding.has_checksum:
            expected, actual = int.from_bytes(data[-_CRC_NBYTES:], "little"), crc32c(data[:-_CRC_NBYTES])
            data = data[:-_CRC_NBYTES]
            if expected != actual:
                raise IntegrityError(
                    "a chunk is damaged", expected=f"CRC-32C 0x{expected:08x}", found=f"0x{actual:08x}"
                )
        elements: Buffer = unpack_zstd(data, self._nbytes) if self._coding.is_compressed else data
        if len(elements) != self._nbytes:
            raise FormatError(
                "a chunk has another size than its shape",
                expected=f"{self._nbytes:,} bytes",
                found=f"{len(elements):,}",
            )
        return elements

    def _zeros(self) -> bytes:
        """Return the chunk of a shard that has none."""
        if not self._coding.is_filled_with_zeros:
            raise IntegrityError("a chunk is missing from its shard")
        return bytes(self._nbytes)

    def checksums(self) -> list[Checksum]:
        """Return nothing: checksums are checked whenever chunks are read."""
        return []


def _rebuilt(store: ZarrStore, name: str, layout: ArrayLayout, is_complete: bool) -> ZarrChunks:
    return ZarrChunks(store, name, layout, is_complete=is_complete)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


class _Places(Mapping[tuple[int, ...], StoredChunk]):
    """Place of a chunk to the chunk, looked up when it is asked for."""

    def __init__(
        self, store: ZarrStore, name: str, layout: ArrayLayout, chunk_nbytes: int, *, is_complete: bool
    ) -> None:
        coding = layout.coding
        outer = coding.shard.shape if coding.shard else layout.chunk
        self._store = store
        self._name = name
        self._coding = coding
        self._is_complete = is_complete
        self._chunk_nbytes = chunk_nbytes
        self._extents = tuple(-(-extent // step) for extent, step in zip(layout.shape, layout.chunk, strict=True))
        self._per_shard = tuple(whole // step for whole, step in zip(outer, layout.chunk, strict=True))
        self._indexes: dict[str, NDArray[Any]] = {}
        self._lock = ReadLock()
        n_values = prod(-(-extent // step) for extent, step in zip(layout.shape, outer, strict=True))
        if is_complete and n_values > store.n_keys:
            raise self._missing(f"{n_values:,} chunks")
        n_places = prod(self._extents)
        self._n_stored = n_places if is_complete else min(n_places, store.n_keys)

    def __len__(self) -> int:
        return self._n_stored

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        """Yield the places of all stored chunks, by their keys, since there may be far more places than keys."""
        for key in self._store.keys_below(self._name):
            numbers = key.removeprefix(f"{self._name}/{self._coding.key}").split(self._coding.separator)
            if len(numbers) != len(self._extents) or not all(map(_is_number, numbers)):
                continue
            starts = [int(number) * n for number, n in zip(numbers, self._per_shard, strict=True)]
            inner = product(*(range(start, start + n) for start, n in zip(starts, self._per_shard, strict=True)))
            yield from (place for place in inner if self._is_inside(place) and place in self)

    def _is_inside(self, place: tuple[int, ...]) -> bool:
        return all(at < extent for at, extent in zip(place, self._extents, strict=True))

    def __contains__(self, place: object) -> bool:
        return isinstance(place, tuple) and self.get(place) is not None

    def __getitem__(self, place: tuple[int, ...]) -> StoredChunk:
        key = self._coding.key_of(self._name, (at // n for at, n in zip(place, self._per_shard, strict=True)))
        span = self._store.find(key)
        if span is None:
            if self._is_complete or not self._coding.is_filled_with_zeros:
                raise self._missing(f"the chunk `{key}`")
            raise KeyError(place)
        if self._coding.shard is None:
            return self._chunk(span)
        if prod(self._per_shard) == 1:
            return StoredChunk(span, is_plain=False, mark=_IN_SHARD)
        number = 0
        for at, n in zip(place, self._per_shard, strict=True):
            number = number * n + at % n
        inner = chunk_in(self._index_of(self._coding.shard, key, span), number)
        if inner is None:
            if not self._coding.is_filled_with_zeros:
                raise self._missing(f"a chunk in the shard `{key}`")
            raise KeyError(place)
        return self._chunk(ByteRange(span.start + inner.start, span.start + inner.stop))

    def _chunk(self, span: ByteRange) -> StoredChunk:
        is_plain = not (self._coding.is_compressed or self._coding.has_checksum) and len(span) == self._chunk_nbytes
        return StoredChunk(span, is_plain=is_plain)

    def _index_of(self, shard: Shard, key: str, span: ByteRange) -> NDArray[Any]:
        """Return the index of a shard, read once."""
        with self._lock:
            known = self._indexes.get(key)
            if known is None:
                inner = index_span(shard, prod(self._per_shard), len(span))
                data = self._store.source.read(ByteRange(span.start + inner.start, span.start + inner.stop))
                known = self._indexes[key] = parse_index(data, shard, len(span))
            return known

    def _missing(self, what: str) -> IntegrityError:
        return IntegrityError(
            "the array is not whole",
            path=self._store.source.name,
            tensor=self._name,
            expected=what,
            found="not all of it",
            hint="If the checkpoint was copied, copy all of its files",
        )

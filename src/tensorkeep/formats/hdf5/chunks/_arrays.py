"""The indexes that are arrays: fixed ones, and extensible ones for datasets that grow along one dimension. Pure.

Both list chunks by a number, and differ in where the entry of a number is. Long blocks are cut into pages with
checksums of their own, and a bitmap says which pages were ever written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from tensorkeep.errors import FormatError, UnsupportedError
from tensorkeep.formats.hdf5.structures import (
    CHECKSUM_NBYTES,
    Dialect,
    Fields,
    Parsing,
    together,
)

_WHAT: Final = "an index of chunks"
_MASK_NBYTES: Final = 4
_MAX_BITS: Final = 64


class Entry(msgspec.Struct, frozen=True):
    """Where one chunk is; `nbytes` is None if it is not filtered.

    Attributes:
        place: Its number, or its place along each dimension.
        address: Its first byte.
        nbytes: Bytes in the file.
        left_out: Which filters were not applied to it.
    """

    place: int | tuple[int, ...]
    address: int
    nbytes: int | None = None
    left_out: int = 0


class _Array(msgspec.Struct, frozen=True):
    """What the header of an array says of its entries and pages."""

    is_filtered: bool
    entry_nbytes: int
    page_length: int

    def entries(self, dialect: Dialect, data: bytes, first: int) -> Iterator[Entry]:
        """Give the chunks that some entries name, counted from `first` on."""
        fields = Fields(data)
        for place in range(first, first + len(data) // self.entry_nbytes):
            address = dialect.address(fields)
            if not self.is_filtered:
                if address is not None:
                    yield Entry(place, address)
                continue
            nbytes = fields.uint(self.entry_nbytes - dialect.address_nbytes - _MASK_NBYTES)
            left_out = fields.uint(_MASK_NBYTES)
            if address is not None:
                yield Entry(place, address, nbytes, left_out)


def _array(dialect: Dialect, client: int, entry_nbytes: int, page_bits: int) -> _Array:
    least = dialect.address_nbytes + (_MASK_NBYTES + 1 if client else 0)
    if client > 1 or (entry_nbytes != least if not client else entry_nbytes < least) or page_bits > _MAX_BITS:
        raise FormatError("an index of chunks has entries of a size that is not possible", found=f"{entry_nbytes}")
    return _Array(bool(client), entry_nbytes, 1 << page_bits)


def read_fixed_array(dialect: Dialect, address: int) -> Parsing[list[Entry]]:
    """Return the chunks that a fixed array lists."""
    fields = Fields((yield [dialect.sealed(address, 12 + dialect.length_nbytes + dialect.address_nbytes, _WHAT)])[0])
    fields.expect(b"FAHD", "fixed array")
    fields.skip(1)
    client, entry_nbytes, page_bits = fields.uint(1), fields.uint(1), fields.uint(1)
    array = _array(dialect, client, entry_nbytes, page_bits)
    length, start = dialect.length(fields), dialect.address(fields)
    if start is None:
        return []
    prefix_nbytes = 6 + dialect.address_nbytes
    if length <= array.page_length:
        return (yield from _read_whole(dialect, array, b"FADB", start, prefix_nbytes, 0, length))
    n_pages = -(-length // array.page_length)
    bitmap_nbytes = -(-n_pages // 8)
    prefix_nbytes += bitmap_nbytes + CHECKSUM_NBYTES
    block = (yield [dialect.sealed(start, prefix_nbytes, _WHAT)])[0]
    Fields(block).expect(b"FADB", "block of a fixed array")
    bitmap = block[-bitmap_nbytes - CHECKSUM_NBYTES :]
    pages = [
        (page * array.page_length, min(array.page_length, length - page * array.page_length))
        for page in range(n_pages)
        if _is_set(bitmap, page)
    ]
    page_nbytes = array.page_length * array.entry_nbytes + CHECKSUM_NBYTES
    return (
        yield from _read_pages(
            dialect,
            array,
            [
                (start + prefix_nbytes + first // array.page_length * page_nbytes, first, n_entries)
                for first, n_entries in pages
            ],
        )
    )


class _Extensible(msgspec.Struct, frozen=True):
    """The header of an extensible array."""

    array: _Array
    size_bits: int
    n_direct: int
    least_length: int
    least_pointers: int
    length: int
    root: int | None

    @property
    def offset_nbytes(self) -> int:
        """Bytes of the place of a block in the array."""
        return -(-self.size_bits // 8)

    def levels(self) -> Iterator[tuple[int, int, int]]:
        """Give, for each super block, its number of blocks, their length, and the first entry of the first one."""
        first = self.n_direct
        for level in range(1 + self.size_bits - (self.least_length.bit_length() - 1)):
            n_blocks, block_length = 1 << level // 2, self.least_length << (level + 1) // 2
            yield n_blocks, block_length, first
            first += n_blocks * block_length


def read_extensible_array(dialect: Dialect, address: int) -> Parsing[list[Entry]]:
    """Return the chunks that an extensible array lists."""
    header = yield from _read_extensible_header(dialect, address)
    if header.root is None:
        return []
    array = header.array
    n_super_in_root = 2 * (header.least_pointers.bit_length() - 1)
    levels = list(header.levels())
    n_blocks = 2 * (header.least_pointers - 1)
    n_super = max(len(levels) - n_super_in_root, 0)
    direct_nbytes = header.n_direct * array.entry_nbytes
    prefix_nbytes = 6 + dialect.address_nbytes
    nbytes = prefix_nbytes + direct_nbytes + (n_blocks + n_super) * dialect.address_nbytes + CHECKSUM_NBYTES
    fields = Fields((yield [dialect.sealed(header.root, nbytes, _WHAT)])[0])
    fields.expect(b"EAIB", "index of an extensible array")
    fields.skip(prefix_nbytes - 4)
    entries = list(array.entries(dialect, fields.take(direct_nbytes), 0))
    blocks: list[Parsing[list[Entry]]] = []
    for n_here, length, first in levels[:n_super_in_root]:
        for place in range(n_here):
            at = dialect.address(fields)
            if at is not None:
                blocks.append(_read_block(dialect, header, at, first + place * length, length))
    for level in levels[n_super_in_root:]:
        at = dialect.address(fields)
        if at is not None:
            blocks.append(_read_super_block(dialect, header, at, level))
    for found in (yield from together(blocks)):
        entries += found
    return entries


def _read_extensible_header(dialect: Dialect, address: int) -> Parsing[_Extensible]:
    fields = Fields(
        (yield [dialect.sealed(address, 16 + 6 * dialect.length_nbytes + dialect.address_nbytes, _WHAT)])[0]
    )
    fields.expect(b"EAHD", "extensible array")
    fields.skip(1)
    client, entry_nbytes, size_bits, n_direct, least_length, least_pointers, page_bits = fields.take(7)
    fields.skip(4 * dialect.length_nbytes)
    length = dialect.length(fields)
    dialect.length(fields)
    array = _array(dialect, client, entry_nbytes, page_bits)
    is_power = least_length.bit_count() == least_pointers.bit_count() == 1
    if not is_power or not least_length.bit_length() <= size_bits <= _MAX_BITS:
        raise FormatError("an index of chunks has blocks of sizes that are not possible")
    root = dialect.address(fields)
    return _Extensible(array, size_bits, n_direct, least_length, least_pointers, length, root)


def _read_super_block(
    dialect: Dialect, header: _Extensible, address: int, level: tuple[int, int, int]
) -> Parsing[list[Entry]]:
    n_blocks, length, first = level
    n_pages = length // header.array.page_length if length > header.array.page_length else 0
    bitmap_nbytes = n_blocks * -(-n_pages // 8)
    prefix_nbytes = 6 + dialect.address_nbytes + header.offset_nbytes
    nbytes = prefix_nbytes + bitmap_nbytes + n_blocks * dialect.address_nbytes + CHECKSUM_NBYTES
    fields = Fields((yield [dialect.sealed(address, nbytes, _WHAT)])[0])
    fields.expect(b"EASB", "block of an extensible array")
    fields.skip(prefix_nbytes - 4)
    bitmap = fields.take(bitmap_nbytes)
    blocks: list[Parsing[list[Entry]]] = []
    for place in range(n_blocks):
        at = dialect.address(fields)
        if at is not None and n_pages:
            start = at + prefix_nbytes + CHECKSUM_NBYTES
            page_nbytes = header.array.page_length * header.array.entry_nbytes + CHECKSUM_NBYTES
            pages = [
                (
                    start + page * page_nbytes,
                    first + place * length + page * header.array.page_length,
                    header.array.page_length,
                )
                for page in range(n_pages)
                if _is_set(bitmap, place * n_pages + page)
            ]
            blocks.append(_read_pages(dialect, header.array, pages))
        elif at is not None:
            blocks.append(_read_block(dialect, header, at, first + place * length, length))
    return [entry for found in (yield from together(blocks)) for entry in found]


def _read_block(dialect: Dialect, header: _Extensible, at: int, first: int, length: int) -> Parsing[list[Entry]]:
    if length > header.array.page_length:
        raise UnsupportedError("an index of chunks has pages where they are not known to be")
    prefix_nbytes = 6 + dialect.address_nbytes + header.offset_nbytes
    return (yield from _read_whole(dialect, header.array, b"EADB", at, prefix_nbytes, first, length))


def _read_whole(
    dialect: Dialect, array: _Array, signature: bytes, at: int, prefix_nbytes: int, first: int, length: int
) -> Parsing[list[Entry]]:
    """Read a block without pages."""
    nbytes = prefix_nbytes + length * array.entry_nbytes + CHECKSUM_NBYTES
    block = (yield [dialect.sealed(at, nbytes, _WHAT)])[0]
    Fields(block).expect(signature, "block of an index of chunks")
    return list(array.entries(dialect, block[prefix_nbytes:-CHECKSUM_NBYTES], first))


def _read_pages(dialect: Dialect, array: _Array, pages: list[tuple[int, int, int]]) -> Parsing[list[Entry]]:
    """Read pages, each given as its address, its first entry and its number of entries."""
    blocks = yield [dialect.sealed(at, n * array.entry_nbytes + CHECKSUM_NBYTES, _WHAT) for at, _, n in pages]
    entries: list[Entry] = []
    for block, (_, first, _) in zip(blocks, pages, strict=True):
        entries += array.entries(dialect, block[:-CHECKSUM_NBYTES], first)
    return entries


def _is_set(bitmap: bytes, place: int) -> bool:
    return bool(bitmap[place // 8] & 0x80 >> place % 8)

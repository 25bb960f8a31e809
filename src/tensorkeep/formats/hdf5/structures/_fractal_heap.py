"""Fractal heaps: objects in blocks of growing size, such as the links and attributes of a large group. Pure."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import msgspec

from tensorkeep.errors import FormatError, UnsupportedError
from tensorkeep.formats.hdf5.structures._btree_v2 import read_btree_v2
from tensorkeep.formats.hdf5.structures._checksums import CHECKSUM_NBYTES, check_metadata, lookup3, refuse_unequal
from tensorkeep.formats.hdf5.structures._fields import Fields
from tensorkeep.formats.hdf5.structures._reading import Dialect, Parsing, together
from tensorkeep.transport import ByteRange

_MANAGED: Final = 0
_HUGE: Final = 1
_TINY: Final = 2
_HAS_CHECKSUMS: Final = 0x02
_SHORT_ID_NBYTES: Final = 18
"""Length of an id up to which a tiny object in it has a length of 4 bits."""

_HUGE_RECORDS: Final = 1
"""The type of a B-tree whose records say where large objects are."""


class _Heap(msgspec.Struct, frozen=True):
    """The header of a heap."""

    id_nbytes: int
    checks_blocks: bool
    max_managed_nbytes: int
    huge: int | None
    width: int
    first_nbytes: int
    max_direct_nbytes: int
    offset_nbytes: int
    root: int | None
    n_rows: int

    @property
    def length_nbytes(self) -> int:
        """Bytes of the length of a managed object in its id."""
        block_bits = self.max_direct_nbytes.bit_length() - 1
        return min(block_bits + 7 >> 3, (max(self.max_managed_nbytes, 1).bit_length() - 1) // 8 + 1)


class _Block(msgspec.Struct, frozen=True, order=True):
    """A direct block: bytes [start, start + nbytes) of the heap."""

    start: int
    nbytes: int
    address: int


class _Indirect(msgspec.Struct, frozen=True):
    """A block of addresses of other blocks, which hold the bytes of the heap from `start` on."""

    start: int
    address: int
    n_rows: int


def read_heap_objects(dialect: Dialect, address: int, ids: list[bytes]) -> Parsing[list[bytes]]:
    """Return the objects with some ids, in their order."""
    heap = yield from _read_header(dialect, address)
    kinds = [_kind_of(id_) for id_ in ids]
    managed: dict[int, tuple[int, int]] = {}
    huge: dict[int, int] = {}
    objects: dict[int, bytes] = {}
    for place, (kind, id_) in enumerate(zip(kinds, ids, strict=True)):
        fields = Fields(id_, 1)
        if kind == _MANAGED:
            managed[place] = fields.uint(heap.offset_nbytes), fields.uint(heap.length_nbytes)
        elif kind == _HUGE:
            huge[place] = fields.uint(min(dialect.length_nbytes, heap.id_nbytes - 1))
        else:
            objects[place] = _tiny(heap, id_)
    objects |= yield from _read_managed(dialect, heap, managed)
    objects |= yield from _read_huge(dialect, heap, huge)
    return [objects[place] for place in range(len(ids))]


def _kind_of(id_: bytes) -> int:
    kind = id_[0] >> 4 & 3 if id_ else _TINY + 1
    if kind > _TINY or id_[0] >> 6:
        raise FormatError("an object of a heap has an id that is not known", found=id_.hex())
    return kind


def _tiny(heap: _Heap, id_: bytes) -> bytes:
    fields = Fields(id_)
    nbytes = (fields.uint(1) & 15) + 1
    if heap.id_nbytes > _SHORT_ID_NBYTES:
        nbytes = (nbytes - 1 << 8 | fields.uint(1)) + 1
    return fields.take(nbytes)


def _read_header(dialect: Dialect, address: int) -> Parsing[_Heap]:
    nbytes = 26 + 3 * dialect.address_nbytes + 12 * dialect.length_nbytes
    block = (yield [dialect.span(address, nbytes)])[0]
    fields = Fields(block)
    fields.expect(b"FRHP", "fractal heap")
    fields.skip(1)
    id_nbytes, filters_nbytes, flags, max_managed_nbytes = (fields.uint(n) for n in (2, 2, 1, 4))
    if filters_nbytes:
        raise UnsupportedError("a heap of the file is compressed")
    check_metadata([(block, "a heap")])
    dialect.length(fields)
    huge = dialect.address(fields)
    dialect.length(fields)
    dialect.address(fields)
    fields.skip(8 * dialect.length_nbytes)
    width, first_nbytes, max_direct_nbytes = fields.uint(2), dialect.length(fields), dialect.length(fields)
    size_bits, _, root, n_rows = fields.uint(2), fields.uint(2), dialect.address(fields), fields.uint(2)
    powers = (width, first_nbytes, max_direct_nbytes)
    if any(power.bit_count() != 1 for power in powers) or first_nbytes > max_direct_nbytes or size_bits > 64:
        raise FormatError("a heap has blocks of sizes that are not possible", found=f"{powers}, {size_bits} bits")
    offset_nbytes = size_bits + 7 >> 3
    return _Heap(
        id_nbytes,
        bool(flags & _HAS_CHECKSUMS),
        max_managed_nbytes,
        huge,
        width,
        first_nbytes,
        max_direct_nbytes,
        offset_nbytes,
        root,
        n_rows,
    )


def _read_managed(dialect: Dialect, heap: _Heap, wanted: dict[int, tuple[int, int]]) -> Parsing[dict[int, bytes]]:
    """Read the blocks that hold objects, each once, and take the objects out of them."""
    if not wanted:
        return {}
    blocks = sorted((yield from _list_blocks(dialect, heap)))
    starts = [block.start for block in blocks]
    block_of: dict[int, _Block] = {}
    for place, (start, nbytes) in wanted.items():
        at = bisect_right(starts, start) - 1
        if at < 0 or start + nbytes > blocks[at].start + blocks[at].nbytes:
            raise FormatError("an object is outside the blocks of its heap", found=f"byte {start:,}")
        block_of[place] = blocks[at]
    needed = list(dict.fromkeys(block_of.values()))
    if sum(nbytes for _, nbytes in wanted.values()) > sum(block.nbytes for block in needed):
        raise FormatError("objects of a heap overlap")
    data = yield [dialect.span(block.address, block.nbytes) for block in needed]
    content = {}
    for block, found in zip(needed, data, strict=True):
        _check_block(dialect, heap, found)
        content[block] = found
    return {
        place: content[block_of[place]][start - block_of[place].start :][:nbytes]
        for place, (start, nbytes) in wanted.items()
    }


def _check_block(dialect: Dialect, heap: _Heap, block: bytes) -> None:
    """Check the signature of a direct block, and its checksum, which is computed with zeros in its place."""
    fields = Fields(block)
    fields.expect(b"FHDB", "block of a heap")
    fields.skip(1 + dialect.address_nbytes + heap.offset_nbytes)
    if heap.checks_blocks:
        at = fields.position
        expected = fields.uint(CHECKSUM_NBYTES)
        found = lookup3(block[:at] + bytes(CHECKSUM_NBYTES) + block[at + CHECKSUM_NBYTES :])
        refuse_unequal("a heap", expected, found)


def _list_blocks(dialect: Dialect, heap: _Heap) -> Parsing[list[_Block]]:
    """Return all direct blocks, level by level of the indirect ones above them."""
    if heap.root is None:
        return []
    if not heap.n_rows:
        return [_Block(0, heap.first_nbytes, heap.root)]
    blocks: list[_Block] = []
    indirect = [_Indirect(0, heap.root, heap.n_rows)]
    seen: set[int] = set()
    while indirect:
        addresses = [block.address for block in indirect]
        if len(set(addresses)) < len(addresses) or not seen.isdisjoint(addresses):
            raise FormatError("a heap has a block twice")
        seen.update(addresses)
        found = yield from together(_read_indirect(dialect, heap, block) for block in indirect)
        blocks += [block for direct, _ in found for block in direct]
        indirect = [block for _, below in found for block in below]
    return blocks


def _read_indirect(dialect: Dialect, heap: _Heap, block: _Indirect) -> Parsing[tuple[list[_Block], list[_Indirect]]]:
    prefix_nbytes = 5 + dialect.address_nbytes + heap.offset_nbytes
    nbytes = prefix_nbytes + block.n_rows * heap.width * dialect.address_nbytes + CHECKSUM_NBYTES
    fields = Fields((yield [dialect.sealed(block.address, nbytes, "a heap")])[0])
    fields.expect(b"FHIB", "indirect block of a heap")
    fields.skip(prefix_nbytes - 4)
    direct: list[_Block] = []
    below: list[_Indirect] = []
    start = block.start
    for row in range(block.n_rows):
        size = heap.first_nbytes << max(row - 1, 0)
        for _ in range(heap.width):
            address = dialect.address(fields)
            if address is not None and size <= heap.max_direct_nbytes:
                direct.append(_Block(start, size, address))
            elif address is not None:
                below.append(_Indirect(start, address, row - heap.width.bit_length() + 1))
            start += size
    return direct, below


def _read_huge(dialect: Dialect, heap: _Heap, wanted: dict[int, int]) -> Parsing[dict[int, bytes]]:
    """Read objects that are too large for blocks, and lie on their own."""
    if not wanted:
        return {}
    if heap.huge is None or dialect.address_nbytes + dialect.length_nbytes <= heap.id_nbytes - 1:
        raise UnsupportedError("a heap of the file has large objects in a form that is not known")
    tree = yield from read_btree_v2(dialect, heap.huge)
    if tree.kind != _HUGE_RECORDS:
        raise UnsupportedError("a heap of the file has large objects in a form that is not known")
    spans: dict[int, ByteRange] = {}
    for record in tree.records:
        fields = Fields(record)
        address, nbytes, number = dialect.address(fields), dialect.length(fields), dialect.length(fields)
        if address is not None:
            spans[number] = dialect.span(address, nbytes)
    if len(set(wanted.values())) < len(wanted) or not spans.keys() >= set(wanted.values()):
        raise FormatError("large objects of a heap are missing, or used twice")
    data = yield [spans[number] for number in wanted.values()]
    return dict(zip(wanted, data, strict=True))

"""B-trees of version 2: the links and attributes of groups, large objects of heaps, and chunks of datasets. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from tensorkeep.errors import FormatError
from tensorkeep.formats.hdf5.structures._checksums import CHECKSUM_NBYTES
from tensorkeep.formats.hdf5.structures._fields import Fields
from tensorkeep.formats.hdf5.structures._reading import Dialect, Parsing, together

_PREFIX_NBYTES: Final = 6
_MAX_DEPTH: Final = 64


class Tree(msgspec.Struct, frozen=True):
    """The records of a tree.

    Attributes:
        kind: What they are.
        records: Their bytes, all of one length, in no order.
    """

    kind: int
    records: list[bytes]


class _Header(msgspec.Struct, frozen=True):
    """The header of a tree, and for each level above the leaves the bytes of a pointer to a node below it."""

    kind: int
    record_nbytes: int
    pointer_nbytes: tuple[tuple[int, int], ...]
    root: int | None
    n_root: int


class _Pointer(msgspec.Struct, frozen=True):
    address: int
    n_records: int


def read_btree_v2(
    dialect: Dialect, address: int, choose: Callable[[list[bytes]], slice] | None = None
) -> Parsing[Tree]:
    """Return all records of a tree; or only those that are chosen in their nodes, and what is between them."""
    header = yield from _read_header(dialect, address)
    records: list[bytes] = []
    nodes = [_Pointer(header.root, header.n_root)] if header.root is not None and header.n_root else []
    seen: set[int] = set()
    for level in reversed(range(len(header.pointer_nbytes) + 1)):
        addresses = [node.address for node in nodes]
        if len(set(addresses)) < len(addresses) or not seen.isdisjoint(addresses):
            raise FormatError("a B-tree has a node twice", found=f"at level {level}")
        seen.update(addresses)
        read = yield from together(_read_node(dialect, header, node, level) for node in nodes)
        nodes = []
        for part, children in read:
            chosen = slice(0, len(part)) if choose is None else choose(part)
            records += part[chosen]
            nodes += children[chosen.start : chosen.stop + 1]
    return Tree(header.kind, records)


def _read_header(dialect: Dialect, address: int) -> Parsing[_Header]:
    nbytes = 22 + dialect.address_nbytes + dialect.length_nbytes
    fields = Fields((yield [dialect.sealed(address, nbytes, "a B-tree")])[0])
    fields.expect(b"BTHD", "B-tree")
    fields.skip(1)
    kind, node_nbytes, record_nbytes, depth = fields.uint(1), fields.uint(4), fields.uint(2), fields.uint(2)
    fields.skip(2)
    root, n_root = dialect.address(fields), fields.uint(2)
    n_most = (node_nbytes - _PREFIX_NBYTES - CHECKSUM_NBYTES) // record_nbytes if record_nbytes else 0
    if n_most < 1 or depth > _MAX_DEPTH:
        raise FormatError("a B-tree has no room for records, or is too high", found=f"depth {depth}")
    n_nbytes = _nbytes_for(n_most)
    pointers: list[tuple[int, int]] = []
    n_below, all_nbytes = n_most, 0
    for _ in range(depth):
        pointers.append((n_nbytes, all_nbytes))
        pointer_nbytes = dialect.address_nbytes + n_nbytes + all_nbytes
        n_here = (node_nbytes - _PREFIX_NBYTES - CHECKSUM_NBYTES - pointer_nbytes) // (record_nbytes + pointer_nbytes)
        n_below = (max(n_here, 0) + 1) * n_below + max(n_here, 0)
        all_nbytes = _nbytes_for(n_below)
    return _Header(kind, record_nbytes, tuple(pointers), root, n_root)


def _read_node(
    dialect: Dialect, header: _Header, node: _Pointer, level: int
) -> Parsing[tuple[list[bytes], list[_Pointer]]]:
    n_nbytes, all_nbytes = header.pointer_nbytes[level - 1] if level else (0, 0)
    pointer_nbytes = dialect.address_nbytes + n_nbytes + all_nbytes
    n_pointers = node.n_records + 1 if level else 0
    nbytes = _PREFIX_NBYTES + node.n_records * header.record_nbytes + n_pointers * pointer_nbytes + CHECKSUM_NBYTES
    fields = Fields((yield [dialect.sealed(node.address, nbytes, "a B-tree")])[0])
    fields.expect(b"BTIN" if level else b"BTLF", "node of a B-tree")
    fields.skip(1)
    if fields.uint(1) != header.kind:
        raise FormatError("a node of a B-tree is of another type than its tree", found=f"address {node.address:,}")
    records = [fields.take(header.record_nbytes) for _ in range(node.n_records)]
    children: list[_Pointer] = []
    for _ in range(n_pointers):
        child, n_records = dialect.address(fields), fields.uint(n_nbytes)
        fields.skip(all_nbytes)
        if child is None:
            raise FormatError("an entry of a B-tree leads nowhere", found=f"node {node.address:,}")
        children.append(_Pointer(child, n_records))
    return records, children


def _nbytes_for(number: int) -> int:
    """Return how many bytes a count up to `number` has."""
    return (number.bit_length() - 1) // 8 + 1

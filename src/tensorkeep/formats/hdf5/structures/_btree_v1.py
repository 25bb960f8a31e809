"""B-trees of version 1: the links of old groups, and the chunks of datasets. Pure."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

import msgspec

from tensorkeep.errors import FormatError
from tensorkeep.formats.hdf5.structures._fields import Fields
from tensorkeep.formats.hdf5.structures._reading import Dialect, Parsing, together

GROUP: Final = 0
CHUNKS: Final = 1

_PREFIX_NBYTES: Final = 8
_FIRST_NBYTES: Final = 544
"""What is read first: a node of a group, as HDF5 writes them unless told otherwise."""


Entry = tuple[bytes, int]
"""A key, and the address of what comes after it."""


class _Node(msgspec.Struct, frozen=True):
    level: int
    entries: list[Entry]


def read_btree_v1(
    dialect: Dialect,
    address: int,
    kind: int,
    key_nbytes: int,
    choose: Callable[[list[Entry]], list[Entry]] | None = None,
) -> Parsing[list[Entry]]:
    """Return every entry of the leaves, in order; or only the chosen ones, by way of chosen entries above."""
    root = yield from _read_node(dialect, address, kind, key_nbytes)
    level, entries = root.level, root.entries if choose is None else choose(root.entries)
    seen = {address}
    while level:
        level -= 1
        children = [child for _, child in entries]
        if len(set(children)) < len(children) or not seen.isdisjoint(children):
            raise FormatError("a B-tree has a node twice", found=f"at level {level}")
        seen.update(children)
        nodes = yield from together(_read_node(dialect, child, kind, key_nbytes) for child in children)
        if any(node.level != level for node in nodes):
            raise FormatError("a B-tree has a node at the wrong level", expected=str(level))
        entries = [entry for node in nodes for entry in (node.entries if choose is None else choose(node.entries))]
    return entries


def _read_node(dialect: Dialect, address: int, kind: int, key_nbytes: int) -> Parsing[_Node]:
    prefix_nbytes = _PREFIX_NBYTES + 2 * dialect.address_nbytes
    fields = Fields((yield [dialect.up_to(address, _FIRST_NBYTES)])[0])
    fields.expect(b"TREE", "node of a B-tree")
    found_kind, level, n_entries = fields.uint(1), fields.uint(1), fields.uint(2)
    if found_kind != kind:
        raise FormatError("a B-tree is of the wrong type", expected=str(kind), found=str(found_kind))
    nbytes = n_entries * (key_nbytes + dialect.address_nbytes)
    fields.position = prefix_nbytes
    if nbytes > fields.n_left:
        fields = Fields((yield [dialect.span(address + prefix_nbytes, nbytes)])[0])
    pairs = list(Struct(f"{key_nbytes}s{dialect.address_nbytes}s").iter_unpack(fields.take(nbytes)))
    if any(child == dialect.nowhere for _, child in pairs):
        raise FormatError("an entry of a B-tree leads nowhere", found=f"node {address:,}")
    return _Node(level, [(key, int.from_bytes(child, "little")) for key, child in pairs])

"""The links of a group, in each of the three ways in which a group can hold them. Pure."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from typing import Final

import msgspec

from tensorkeep.errors import FormatError
from tensorkeep.formats.hdf5.structures._btree_v1 import GROUP, Entry, read_btree_v1
from tensorkeep.formats.hdf5.structures._btree_v2 import read_btree_v2
from tensorkeep.formats.hdf5.structures._checksums import lookup3
from tensorkeep.formats.hdf5.structures._fields import Fields
from tensorkeep.formats.hdf5.structures._fractal_heap import read_heap_objects
from tensorkeep.formats.hdf5.structures._heaps import read_local_heap, text_of
from tensorkeep.formats.hdf5.structures._object_header import LINK, LINK_INFO, SYMBOL_TABLE, ObjectHeader
from tensorkeep.formats.hdf5.structures._reading import Dialect, Parsing, together
from tensorkeep.limits import MAX_U64

_SOFT: Final = 1
_EXTERNAL: Final = 64
_SOFT_ENTRY: Final = 2
"""What the entry of an old group says of a soft link."""

_FIRST_NBYTES: Final = 328
"""What is read first: a node with the links of an old group, as HDF5 writes them unless told otherwise."""

_ENTRY: Final = struct.Struct("<QQI4xI12x")
_ENTRY_NUMBER_NBYTES: Final = 8
"""An entry of an old group where addresses have 8 bytes: name, address, kind, and the place of a path in the heap."""

_NAMES_TREE: Final = 5
_HASH_NBYTES: Final = 4
_LINK_ID_NBYTES: Final = 7


class Link(msgspec.Struct, frozen=True):
    """One link of a group; exactly one of the last three says what it leads to.

    Attributes:
        name: Its name.
        order: Its place in the order in which links were made; None if the group does not keep it.
        address: Where the header of the object is, for a hard link.
        path: The path of the object in this file, for a soft link.
        elsewhere: What a link of another kind says, for people.
    """

    name: str
    order: int | None = None
    address: int | None = None
    path: str | None = None
    elsewhere: str | None = None


def holds_links(header: ObjectHeader) -> bool:
    """Say whether an object is a group."""
    return any(message.kind in {SYMBOL_TABLE, LINK_INFO, LINK} for message in header.messages)


def read_links(dialect: Dialect, header: ObjectHeader, near: str | None = None) -> Parsing[list[Link]]:
    """Return the links of a group, in the order in which they were made or else of their names.

    With a name, only the nodes are read in which a link of that name has to be.
    """
    name = None if near is None else near.encode(errors="surrogatepass")
    links = [_parse_link(dialect, message.data) for message in header.all(LINK)]
    for message in header.all(SYMBOL_TABLE):
        links += yield from _read_symbols(dialect, Fields(message.data), name)
    for message in header.all(LINK_INFO):
        links += yield from _read_dense(dialect, Fields(message.data), name)
    names = {link.name for link in links}
    if len(names) < len(links) or any(not name or name == "." or "/" in name for name in names):
        raise FormatError("a group has two links of one name, or one that no link can have")
    if all(link.order is not None for link in links):
        return sorted(links, key=lambda link: link.order or 0)
    return sorted(links, key=lambda link: link.name)


def _read_symbols(dialect: Dialect, fields: Fields, near: bytes | None) -> Parsing[list[Link]]:
    tree, heap_address = dialect.address(fields), dialect.address(fields)
    if tree is None or heap_address is None:
        raise FormatError("a group has no B-tree or no heap")
    heap = yield from read_local_heap(dialect, heap_address)

    def before(entries: list[Entry]) -> list[Entry]:
        """Choose the last entry with a key before the name: keys are where names are in the heap."""
        stop = bisect_left(entries, near or b"", key=lambda entry: text_of(heap, int.from_bytes(entry[0], "little")))
        return entries[max(stop - 1, 0) : stop]

    choose = None if near is None else before
    leaves = yield from read_btree_v1(dialect, tree, GROUP, dialect.length_nbytes, choose)
    if len({address for _, address in leaves}) < len(leaves):
        raise FormatError("a group has a node twice")
    nodes = yield from together(_read_symbol_node(dialect, address) for _, address in leaves)
    links: list[Link] = []
    n_left = len(heap)  # names do not overlap
    for symbol in (symbol for node in nodes for symbol in node):
        texts = [text_of(heap, start) for start in (symbol.name, symbol.path) if start is not None]
        n_left -= sum(map(len, texts))
        if n_left < 0:
            raise FormatError("the names of a group overlap in its heap")
        name, *path = map(_decode, texts)
        if not path and symbol.address is None:
            raise FormatError(f"the link `{name}` leads nowhere")
        links.append(Link(name, path=path[0]) if path else Link(name, address=symbol.address))
    return links


class _Symbol(msgspec.Struct, frozen=True):
    """An entry of an old group; name and path are bytes of its heap."""

    name: int
    address: int | None
    path: int | None


def _read_symbol_node(dialect: Dialect, address: int) -> Parsing[list[_Symbol]]:
    fields = Fields((yield [dialect.up_to(address, _FIRST_NBYTES)])[0])
    fields.expect(b"SNOD", "node of a group")
    fields.skip(2)
    n_links = fields.uint(2)
    nbytes = n_links * (dialect.length_nbytes + dialect.address_nbytes + 24)
    if nbytes > fields.n_left:
        fields = Fields((yield [dialect.span(address + fields.position, nbytes)])[0])
    if dialect.length_nbytes == dialect.address_nbytes == _ENTRY_NUMBER_NBYTES:
        return [_symbol(*entry) for entry in _ENTRY.iter_unpack(fields.take(nbytes))]
    symbols: list[_Symbol] = []
    for _ in range(n_links):
        name, at, kind = dialect.length(fields), dialect.address(fields), fields.uint(4)
        fields.skip(4)
        scratch = fields.take(16)
        path = int.from_bytes(scratch[:4], "little") if kind == _SOFT_ENTRY else None
        symbols.append(_Symbol(name, at, path))
    return symbols


def _symbol(name: int, address: int, kind: int, path: int) -> _Symbol:
    return _Symbol(name, None if address == MAX_U64 else address, path if kind == _SOFT_ENTRY else None)


def _read_dense(dialect: Dialect, fields: Fields, near: bytes | None) -> Parsing[list[Link]]:
    fields.skip(1)
    flags = fields.uint(1)
    fields.skip(8 if flags & 1 else 0)
    heap, tree_address = dialect.address(fields), dialect.address(fields)
    if heap is None or tree_address is None:
        return []
    wanted = lookup3(near or b"")

    def of_name(records: list[bytes]) -> slice:
        hashes = [int.from_bytes(record[:_HASH_NBYTES], "little") for record in records]
        return slice(bisect_left(hashes, wanted), bisect_right(hashes, wanted))

    tree = yield from read_btree_v2(dialect, tree_address, None if near is None else of_name)
    if tree.kind != _NAMES_TREE or any(len(record) != _HASH_NBYTES + _LINK_ID_NBYTES for record in tree.records):
        raise FormatError("the names of a group are in a B-tree of another type", found=f"type {tree.kind}")
    ids = [record[_HASH_NBYTES:] for record in tree.records]
    return [_parse_link(dialect, data) for data in (yield from read_heap_objects(dialect, heap, ids))]


def _parse_link(dialect: Dialect, data: bytes) -> Link:
    fields = Fields(data)
    if fields.uint(1) != 1:
        raise FormatError("a link has a version that is not known", found=str(data[0]))
    flags = fields.uint(1)
    kind = fields.uint(1) if flags & 8 else 0
    order = fields.uint(8) if flags & 4 else None
    fields.skip(1 if flags & 16 else 0)
    name = _decode(fields.take(fields.uint(1 << (flags & 3))))
    if not kind:
        address = dialect.address(fields)
        if address is None:
            raise FormatError(f"the link `{name}` leads nowhere")
        return Link(name, order, address)
    value = fields.take(fields.uint(2))
    if kind == _SOFT:
        return Link(name, order, path=_decode(value))
    if kind == _EXTERNAL:
        file, _, path = value[1:].rstrip(b"\0").partition(b"\0")
        return Link(name, order, elsewhere=f"a link to `{_shown(path)}` in the file `{_shown(file)}`")
    return Link(name, order, elsewhere=f"a link of a kind that programs define, number {kind}")


def _decode(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise FormatError("a name is not UTF-8", found=_shown(text)) from None


def _shown(text: bytes) -> str:
    return text.decode(errors="backslashreplace")

"""Heaps: texts of old groups (local), and strings of any length (global). Pure."""

from __future__ import annotations

from typing import Final

from tensorkeep.errors import FormatError
from tensorkeep.formats.hdf5.structures._fields import Fields
from tensorkeep.formats.hdf5.structures._reading import Dialect, Parsing

_FIRST_NBYTES: Final = 88
"""Data of a local heap that is read with its head: what HDF5 reserves for a new group, right behind it."""

_LOCAL_PREFIX_NBYTES: Final = 8
_GLOBAL_PREFIX_NBYTES: Final = 8
_GLOBAL_ALIGNMENT: Final = 8
"""A global heap's head, the heads of its objects, and these themselves are padded to multiples of so many bytes."""


def read_local_heap(dialect: Dialect, address: int) -> Parsing[bytes]:
    """Return the data of a local heap."""
    prefix_nbytes = _LOCAL_PREFIX_NBYTES + 2 * dialect.length_nbytes + dialect.address_nbytes
    head = (yield [dialect.up_to(address, prefix_nbytes + _FIRST_NBYTES)])[0]
    fields = Fields(head)
    fields.expect(b"HEAP", "local heap")
    fields.skip(4)
    nbytes = dialect.length(fields)
    dialect.length(fields)
    start = dialect.address(fields)
    if start is None:
        raise FormatError("a local heap has no data")
    if start == address + prefix_nbytes and prefix_nbytes + nbytes <= len(head):
        return head[prefix_nbytes : prefix_nbytes + nbytes]
    return (yield [dialect.span(start, nbytes)])[0]


def text_of(heap: bytes, start: int) -> bytes:
    """Return the text at a byte of a local heap, without the zero that ends it."""
    stop = heap.find(b"\0", start) if start < len(heap) else -1
    if stop < 0:
        raise FormatError("a name is not in its heap", found=f"byte {start:,} of {len(heap):,}")
    return heap[start:stop]


def read_global_heap(dialect: Dialect, address: int) -> Parsing[dict[int, bytes]]:
    """Return the objects of a global heap by their index."""
    prefix_nbytes = _GLOBAL_PREFIX_NBYTES + dialect.length_nbytes
    padding_nbytes = -prefix_nbytes % _GLOBAL_ALIGNMENT
    fields = Fields((yield [dialect.span(address, prefix_nbytes)])[0])
    fields.expect(b"GCOL", "global heap")
    fields.skip(4)
    content = (yield [dialect.span(address, dialect.length(fields))])[0]
    fields = Fields(content, prefix_nbytes + padding_nbytes)
    objects: dict[int, bytes] = {}
    while fields.n_left >= prefix_nbytes + padding_nbytes:
        index = fields.uint(2)
        if not index:  # the rest is free
            break
        fields.skip(6)
        nbytes = dialect.length(fields)
        fields.skip(padding_nbytes)
        if index in objects:
            raise FormatError("a global heap has two objects of one index", found=str(index))
        objects[index] = fields.take(nbytes)
        fields.skip(min(-nbytes % _GLOBAL_ALIGNMENT, fields.n_left))
    return objects

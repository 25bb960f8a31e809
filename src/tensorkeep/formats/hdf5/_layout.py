"""Where the elements of a dataset are, by its layout message, and what elements are that were never written. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from tensorkeep.errors import FormatError, UnsupportedError
from tensorkeep.formats.hdf5.structures import Dialect, Fields
from tensorkeep.limits import MAX_NDIM

_COMPACT: Final = 0
_CONTIGUOUS: Final = 1
_CHUNKED: Final = 2
_VIRTUAL: Final = 3

_FILTERS_NO_EDGES: Final = 1
_SINGLE_IS_FILTERED: Final = 2

OLD_TREE: Final = 0
SINGLE: Final = 1
IMPLICIT: Final = 2
FIXED_ARRAY: Final = 3
EXTENSIBLE_ARRAY: Final = 4
TREE: Final = 5

_PARAMETERS_NBYTES: Final = {FIXED_ARRAY: 1, EXTENSIBLE_ARRAY: 5, TREE: 6}
"""Bytes that say how an index was made; the index itself repeats what reading needs."""


class Compact(msgspec.Struct, frozen=True):
    """Elements in the layout message itself, from byte `start` of it on."""

    start: int
    nbytes: int


class Contiguous(msgspec.Struct, frozen=True):
    """Elements in one range of the file; `address` is None if none was ever written."""

    address: int | None
    nbytes: int | None = None


class Chunked(msgspec.Struct, frozen=True):
    """Elements in chunks.

    Attributes:
        shape: Elements of each chunk along each dimension.
        itemsize: Bytes of one element.
        index: Which kind of index lists the chunks.
        address: Where it is, or the only chunk; None if nothing was ever written.
        filters_edges: Whether chunks at the end of a dimension are filtered like the others.
        single: Bytes of the only chunk, and which filters were left out for it, if it is filtered.
    """

    shape: tuple[int, ...]
    itemsize: int
    index: int
    address: int | None
    filters_edges: bool = True
    single: tuple[int, int] | None = None


class Virtual(msgspec.Struct, frozen=True):
    """Elements of other datasets, mostly in other files."""


Layout = Compact | Contiguous | Chunked | Virtual


def parse_layout(dialect: Dialect, data: bytes) -> Layout:
    """Parse a layout message."""
    fields = Fields(data)
    version = fields.uint(1)
    if version in {1, 2}:
        return _parse_old(dialect, fields)
    if version not in {3, 4, 5}:
        raise UnsupportedError("a dataset has a layout of a version that is not known", found=str(version))
    kind = fields.uint(1)
    if kind == _COMPACT:
        return _compact(fields, fields.uint(2))
    if kind == _CONTIGUOUS:
        return Contiguous(dialect.address(fields), dialect.length(fields))
    if kind == _VIRTUAL:
        return Virtual()
    if kind != _CHUNKED:
        raise UnsupportedError("a dataset has a layout that is not known", found=f"class {kind}")
    return _parse_chunked(dialect, fields) if version > 3 else _parse_old_chunked(dialect, fields)


def _parse_old(dialect: Dialect, fields: Fields) -> Layout:
    ndim, kind = fields.uint(1), fields.uint(1)
    fields.skip(5)
    address = None if kind == _COMPACT else dialect.address(fields)
    extents = tuple(fields.uint(4) for _ in range(ndim))
    if kind == _COMPACT:
        return _compact(fields, fields.uint(4))
    if kind == _CONTIGUOUS:
        return Contiguous(address)
    if kind != _CHUNKED or not ndim:
        raise UnsupportedError("a dataset has a layout that is not known", found=f"class {kind}")
    return _chunked(extents, fields.uint(4) if fields.n_left >= 4 else 0, OLD_TREE, address)


def _compact(fields: Fields, nbytes: int) -> Compact:
    start = fields.position
    fields.skip(nbytes)
    return Compact(start, nbytes)


def _parse_old_chunked(dialect: Dialect, fields: Fields) -> Chunked:
    ndim, address = fields.uint(1), dialect.address(fields)
    extents = tuple(fields.uint(4) for _ in range(ndim))
    return _chunked(extents[:-1], extents[-1] if extents else 0, OLD_TREE, address)


def _parse_chunked(dialect: Dialect, fields: Fields) -> Chunked:
    flags, ndim, extent_nbytes = fields.uint(1), fields.uint(1), fields.uint(1)
    extents = tuple(fields.uint(extent_nbytes) for _ in range(ndim))
    index = fields.uint(1)
    single = None
    if index == SINGLE and flags & _SINGLE_IS_FILTERED:
        single = dialect.length(fields), fields.uint(4)
    elif index > TREE or not index:
        raise UnsupportedError("a dataset has an index of chunks that is not known", found=f"type {index}")
    fields.skip(_PARAMETERS_NBYTES.get(index, 0))
    chunked = _chunked(extents[:-1], extents[-1] if extents else 0, index, dialect.address(fields))
    return msgspec.structs.replace(chunked, filters_edges=not flags & _FILTERS_NO_EDGES, single=single)


def _chunked(shape: tuple[int, ...], itemsize: int, index: int, address: int | None) -> Chunked:
    if not 0 < len(shape) <= MAX_NDIM or not all(shape) or not itemsize:
        raise FormatError("a dataset has chunks without elements", found=f"{shape} of {itemsize} bytes")
    return Chunked(shape, itemsize, index, address)


def parse_fill_value(data: bytes) -> bytes:
    """Parse a fill value message; empty where elements that were never written are zero."""
    fields = Fields(data)
    version = fields.uint(1)
    if version == 3:
        has_value = fields.uint(1) & 0x20
        return fields.take(fields.uint(4)) if has_value else b""
    if version not in {1, 2}:
        raise UnsupportedError("a fill value has a version that is not known", found=str(version))
    fields.skip(2)
    is_defined = fields.uint(1)
    return fields.take(fields.uint(4)) if (is_defined or version == 1) and fields.n_left >= 4 else b""


def parse_old_fill_value(data: bytes) -> bytes:
    """Parse a fill value message of the oldest form."""
    fields = Fields(data)
    return fields.take(fields.uint(4))

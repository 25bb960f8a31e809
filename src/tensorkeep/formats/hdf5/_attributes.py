"""Attributes as plain data: numbers, texts, and tuples of them. Pure."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, Final

import msgspec

from tensorkeep.errors import FormatError, LimitError, UnsupportedError
from tensorkeep.formats.hdf5._dataspace import parse_dataspace
from tensorkeep.formats.hdf5._datatype import Datatype, parse_datatype
from tensorkeep.formats.hdf5._unknown import UnknownObject
from tensorkeep.formats.hdf5.structures import (
    ATTRIBUTE,
    ATTRIBUTE_INFO,
    DATATYPE,
    Dialect,
    Fields,
    Message,
    ObjectHeader,
    Parsing,
    read_btree_v2,
    read_global_heap,
    read_heap_objects,
    read_shared,
    together,
)

_NAMES_TREE: Final = 8
_RECORD: Final = struct.Struct("<8sBII")
"""Id in the heap, flags, place in the order in which attributes were made, hash of the name."""

_SHARED_RECORD: Final = 2
_TYPE_IS_SHARED: Final = 1
_SPACE_IS_SHARED: Final = 2

MAX_ATTRIBUTE_NUMBERS: Final = 1_000_000
"""Elements of one attribute that become Python values; a longer one is an `UnknownObject`."""

_CODES: Final = {
    "BOOL": "?",
    "I8": "b",
    "U8": "B",
    "I16": "h",
    "U16": "H",
    "I32": "i",
    "U32": "I",
    "I64": "q",
    "U64": "Q",
    "F16": "e",
    "F32": "f",
    "F64": "d",
    "C64": "ff",
    "C128": "dd",
}
"""Dtypes of attributes to the codes of `struct`."""


class _Attribute(msgspec.Struct, frozen=True):
    """An attribute whose long texts and lists are still in heaps."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...] | None
    data: bytes


def as_text(data: bytes) -> str:
    """Return a text, which ends at a zero byte; bytes that are not UTF-8 are escaped."""
    return data.partition(b"\0")[0].decode(errors="backslashreplace")


def read_attributes(
    dialect: Dialect, headers: list[ObjectHeader], text: Callable[[bytes], Any] = as_text
) -> Parsing[list[dict[str, Any]]]:
    """Return the attributes of each object by name, with what `text` makes of texts; each heap is read once."""
    found = yield from together(_read_messages(dialect, header) for header in headers)
    addresses = {at for attributes in found for each in attributes for at, _ in _references(dialect, each)}
    heaps = yield from together(read_global_heap(dialect, address) for address in addresses)
    values = Values(dialect, dict(zip(addresses, heaps, strict=True)), text)
    return [{each.name: values.of(each) for each in attributes} for attributes in found]


def _read_messages(dialect: Dialect, header: ObjectHeader) -> Parsing[list[_Attribute]]:
    """Return the attributes of one object."""
    found = yield from together(_parse(dialect, message.data) for message in header.all(ATTRIBUTE))
    for message in header.all(ATTRIBUTE_INFO):
        fields = Fields(message.data, 1)
        flags = fields.uint(1)
        fields.skip(2 if flags & 1 else 0)
        heap, tree_address = dialect.address(fields), dialect.address(fields)
        if heap is None or tree_address is None:
            continue
        tree = yield from read_btree_v2(dialect, tree_address)
        if tree.kind != _NAMES_TREE or any(len(record) != _RECORD.size for record in tree.records):
            raise FormatError("the attributes of an object are in a B-tree of another type")
        records = sorted((_RECORD.unpack(record) for record in tree.records), key=lambda record: record[2])
        if any(flags & _SHARED_RECORD for _, flags, _, _ in records):
            raise UnsupportedError("an object shares attributes through a table of the file")
        dense = yield from read_heap_objects(dialect, heap, [id_ for id_, _, _, _ in records])
        found += yield from together(_parse(dialect, data) for data in dense)
    if len({each.name for each in found}) < len(found):
        raise FormatError("an object has two attributes of one name")
    return found


def _parse(dialect: Dialect, data: bytes) -> Parsing[_Attribute]:
    fields = Fields(data)
    version, flags = fields.uint(1), fields.uint(1)
    if version not in {1, 2, 3}:
        raise UnsupportedError("an attribute has a version that is not known", found=str(version))
    sizes = [fields.uint(2) for _ in range(3)]
    fields.skip(1 if version == 3 else 0)
    parts: list[bytes] = []
    for size in sizes:
        parts.append(fields.take(size))
        fields.skip(-size % 8 if version == 1 else 0)
    name, datatype, dataspace = parts
    if version > 1 and flags & _SPACE_IS_SHARED:
        raise UnsupportedError("an attribute shares its shape with another object")
    if version > 1 and flags & _TYPE_IS_SHARED:
        datatype = (yield from read_shared(dialect, Message(DATATYPE, datatype, 0))).data
    return _Attribute(
        name.partition(b"\0")[0].decode(errors="backslashreplace"),
        parse_datatype(datatype),
        parse_dataspace(dataspace, dialect.length_nbytes).shape,
        fields.data[fields.position :],
    )


def _references(dialect: Dialect, attribute: _Attribute) -> Iterator[tuple[int, int]]:
    """Give the heap and the index of every element that is in a heap."""
    if attribute.datatype.form not in {"long text", "list"}:
        return
    fields = Fields(attribute.data)
    for _ in range(_n_elements(attribute)):
        fields.skip(4)
        address, index = dialect.address(fields), fields.uint(4)
        if address:
            yield address, index


def _n_elements(attribute: _Attribute) -> int:
    """Return how many elements an attribute has, which must all be there."""
    n_elements = 0 if attribute.shape is None else prod(attribute.shape)
    nbytes = n_elements * attribute.datatype.nbytes
    if nbytes > len(attribute.data):
        raise FormatError(
            f"the attribute `{attribute.name:.200}` ends early",
            expected=f"{nbytes:,} bytes",
            found=f"{len(attribute.data):,}",
        )
    return n_elements


class Values:
    """Turns the elements of attributes into plain values; `heaps` holds what is not in them."""

    def __init__(
        self, dialect: Dialect, heaps: dict[int, dict[int, bytes]], text: Callable[[bytes], Any] = as_text
    ) -> None:
        self._dialect = dialect
        self._heaps = heaps
        self._text = text
        self._known: dict[tuple[int, int, int, str], Any] = {}
        self._n_left = dialect.nbytes

    def of(self, attribute: _Attribute) -> Any:
        """Return a number or text, a tuple of them, or an `UnknownObject`; None if there are no elements at all."""
        if attribute.shape is None:
            return None
        datatype = attribute.datatype
        n_elements = _n_elements(attribute)
        if n_elements * prod(datatype.shape) > MAX_ATTRIBUTE_NUMBERS:
            return UnknownObject(f"{n_elements:,} {datatype.what}", "too many for an attribute")
        if datatype.form == "number":
            values: Sequence[Any] | None = _numbers(datatype, attribute.data[: n_elements * datatype.nbytes])
        elif datatype.form == "text":
            values = [
                self._text(attribute.data[start : start + datatype.nbytes])
                for start in range(0, n_elements * datatype.nbytes, datatype.nbytes)
            ]
        elif datatype.form in {"long text", "list"}:
            values = self._from_heaps(attribute, n_elements)
        else:
            values = None
        if values is None:
            return UnknownObject(datatype.what)
        return _nested(values, attribute.shape + datatype.shape)

    def _from_heaps(self, attribute: _Attribute, n_elements: int) -> list[Any] | None:
        base = attribute.datatype.base
        if base is not None and (base.form != "number" or base.shape):
            return None
        fields = Fields(attribute.data)
        return [self._from_heap(base, fields) for _ in range(n_elements)]

    def _from_heap(self, base: Datatype | None, fields: Fields) -> Any:
        length, address, index = fields.uint(4), self._dialect.address(fields), fields.uint(4)
        if not address:  # nothing was ever written
            return "" if base is None else ()
        nbytes = length * (1 if base is None else base.nbytes)
        self._n_left -= nbytes
        if self._n_left < 0:
            raise LimitError(
                "attributes refer to the same bytes again and again",
                expected=f"at most {self._dialect.nbytes:,} bytes together, as the file has",
            )
        key = (address, index, length, "" if base is None else f"{base.dtype}{base.is_big_endian}")
        if key not in self._known:
            data = self._heaps[address].get(index)
            if data is None or len(data) < nbytes:
                raise FormatError(
                    "an attribute is not in its heap", found=f"object {index} of the heap at {address:,}"
                )
            self._known[key] = self._text(data[:nbytes]) if base is None else _numbers(base, data[:nbytes])
        return self._known[key]


def _numbers(datatype: Datatype, data: bytes) -> tuple[Any, ...] | None:
    code = _CODES.get(datatype.dtype or "")
    if code is None:
        return None
    order = "><"[not datatype.is_big_endian]
    found = struct.iter_unpack(f"{order}{code}", data)
    return tuple(complex(*each) if len(each) == 2 else each[0] for each in found)


def _nested(values: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """Return values in tuples of tuples of the given shape; the only value if it has no dimensions."""
    if not prod(shape):
        return ()
    for extent in reversed(shape[1:]):
        values = [tuple(values[start : start + extent]) for start in range(0, len(values), extent)]
    return tuple(values) if shape else values[0]

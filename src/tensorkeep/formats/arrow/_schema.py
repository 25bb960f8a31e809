"""The schema of a file: its columns, with the types that they have. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tensorkeep.errors import FormatError, LimitError
from tensorkeep.formats.arrow._flatbuffers import Table
from tensorkeep.limits import MAX_NDIM

_NBYTES_PER_FIELD: Final = 16
"""Bytes of a schema for each field, at least: an honest one takes 60."""

_MAX_DEPTH: Final = MAX_NDIM
_UNITS: Final = ("s", "ms", "us", "ns")
_FLOATS: Final = ("F16", "F32", "F64")
_EXTENSION: Final = "ARROW:extension:name"
_PICKLED: Final = (_EXTENSION, "arrow.py_extension_type")
"""What a column says whose type is a pickle, which pyarrow before 14.0.1 loads with the schema."""
_NAMES: Final = (
    *("", "null", "int", "float", "binary", "utf8", "bool", "decimal", "date", "time", "timestamp", "interval"),
    *("list", "struct", "union", "fixed_size_binary", "fixed_size_list", "map", "duration", "large_binary"),
    *("large_utf8", "large_list", "run_end_encoded", "binary_view", "utf8_view", "list_view", "large_list_view"),
)
"""Types by their numbers in the union of the schema."""


class Field(msgspec.Struct, frozen=True):
    """One column, or a part of one.

    Attributes:
        name: As the file says.
        kind: Name of the type.
        text: The type with its unit, for people.
        dtype: Name in the dtype table, if elements have a fixed size; a column of bits is `"BOOL"`.
        size: Elements of a list of fixed size, or bytes of a binary of fixed size.
        children: The fields in it.
        metadata: Free text by key.
        is_encoded: Whether its values are places in a dictionary.
        is_dense: Whether a union has offsets.
        is_pickled: Whether some versions of pyarrow unpickle its type, or a type in it.
    """

    name: str
    kind: str
    text: str
    dtype: str | None = None
    size: int = 0
    children: tuple[Field, ...] = ()
    metadata: dict[str, str] = {}
    is_encoded: bool = False
    is_dense: bool = False
    is_pickled: bool = False

    @property
    def extension(self) -> str:
        """Name of the extension type; empty if it has none."""
        return self.metadata.get(_EXTENSION, "")


class Schema(msgspec.Struct, frozen=True):
    """The columns of a file.

    Attributes:
        fields: The columns.
        metadata: Free text by key.
        is_big_endian: Whether elements have their highest byte first.
    """

    fields: tuple[Field, ...]
    metadata: dict[str, str]
    is_big_endian: bool


def parse_schema(table: Table, nbytes: int) -> Schema:
    """Read the schema in a message of `nbytes` bytes."""
    count = _Count(nbytes // _NBYTES_PER_FIELD + 1)
    fields = tuple(_parse_field(field, count, 0) for field in table.tables(1))
    return Schema(fields, parse_metadata(table, 2), table.number(0, "h") == 1)


def parse_metadata(table: Table, field: int) -> dict[str, str]:
    """Return the free text of a table."""
    return dict(_pairs(table, field))


def _pairs(table: Table, field: int) -> list[tuple[str, str]]:
    return [(entry.text(0), entry.text(1)) for entry in table.tables(field)]


class _Count:
    """Counts fields: one table may be in many places."""

    def __init__(self, n_left: int) -> None:
        self._n_left = n_left

    def take(self) -> None:
        self._n_left -= 1
        if self._n_left < 0:
            raise LimitError("the schema has more fields than its bytes can describe")


def _parse_field(table: Table, count: _Count, depth: int) -> Field:
    count.take()
    if depth > _MAX_DEPTH:
        raise LimitError("columns are nested too deeply", expected=f"at most {_MAX_DEPTH} levels")
    kind, facts = parse_type(table.number(2, "B"), table.table(3))
    children = tuple([_parse_field(child, count, depth + 1) for child in table.tables(5)])
    metadata = _pairs(table, 6)
    return Field(
        table.text(0),
        kind,
        children=children,
        metadata=dict(metadata),
        is_encoded=table.table(4) is not None,
        is_pickled=_PICKLED in metadata or any(child.is_pickled for child in children),
        **facts,
    )


def parse_type(number: int, table: Table | None) -> tuple[str, dict[str, Any]]:
    """Return the kind of a type, and what else is known of it."""
    if not 0 < number < len(_NAMES) or table is None:
        raise FormatError("a column has a type that Arrow does not have", found=f"number {number}")
    kind = _NAMES[number]
    return kind, {"text": kind} | (_TYPES[kind](table) if kind in _TYPES else {})


def _int(table: Table) -> dict[str, Any]:
    width, letter = table.number(0, "i"), "I" if table.number(1, "B") else "U"
    if width not in {8, 16, 32, 64}:
        raise FormatError("a column has integers of another width than 8, 16, 32 or 64 bits", found=str(width))
    return {"dtype": f"{letter}{width}", "text": f"{'int' if letter == 'I' else 'uint'}{width}"}


def _float(table: Table) -> dict[str, Any]:
    dtype = _of(_FLOATS, table.number(0, "h"))
    return {"dtype": dtype, "text": f"float{dtype[1:]}"}


def _date(table: Table) -> dict[str, Any]:
    is_days = table.number(0, "h", 1) == 0
    return {"dtype": "I32" if is_days else "I64", "text": "date[D]" if is_days else "date[ms]"}


def _time(table: Table) -> dict[str, Any]:
    unit = _of(_UNITS, table.number(0, "h", 1))
    return {"dtype": "I64" if table.number(1, "i", 32) == 64 else "I32", "text": f"time[{unit}]"}


def _timestamp(table: Table) -> dict[str, Any]:
    zone = table.text(1)
    unit = _of(_UNITS, table.number(0, "h"))
    return {"dtype": "I64", "text": f"timestamp[{unit}, {zone}]" if zone else f"timestamp[{unit}]"}


def _duration(table: Table) -> dict[str, Any]:
    return {"dtype": "I64", "text": f"duration[{_of(_UNITS, table.number(0, 'h', 1))}]"}


def _sized(table: Table) -> dict[str, Any]:
    size = table.number(0, "i")
    if size < 0:
        raise FormatError("a column has elements of a negative size", found=str(size))
    return {"size": size}


def _binary(table: Table) -> dict[str, Any]:
    return _sized(table) | {"dtype": "U8"}


def _union(table: Table) -> dict[str, Any]:
    return {"is_dense": table.number(0, "h") == 1}


def _of(names: tuple[str, ...], number: int) -> str:
    if not 0 <= number < len(names):
        raise FormatError("a column has a unit or precision that Arrow does not have", found=str(number))
    return names[number]


_TYPES: Final = {
    "int": _int,
    "float": _float,
    "bool": lambda _: {"dtype": "BOOL"},
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "duration": _duration,
    "fixed_size_binary": _binary,
    "fixed_size_list": _sized,
    "union": _union,
}
"""Kind to a function that reads what else is known of the type."""

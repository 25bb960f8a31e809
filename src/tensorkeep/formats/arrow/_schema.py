"""The schema of a file: its columns, with the types that they have. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

from tensorkeep.errors import FormatError, LimitError
from tensorkeep.formats.arrow._flatbuffers import Table
from tensorkeep.formats.arrow._r_metadata import R_KEY
from tensorkeep.formats.arrow._tables import Tables, join_tables, tables_of
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


Part = TypeVar("Part")


class Type(msgspec.Struct, frozen=True):
    """The type of a column.

    Attributes:
        kind: Its name.
        text: The same with its unit, for people.
        dtype: Name in the dtype table, if elements have a fixed size; a column of bits is `"BOOL"`.
        size: Elements of a list of fixed size, or bytes of a binary of fixed size.
        is_dense: Whether a union has offsets.
    """

    kind: str
    text: str
    dtype: str | None = None
    size: int = 0
    is_dense: bool = False


class Form(msgspec.Struct, frozen=True):
    """What a column is, apart from its name; columns that are alike have one such object.

    Attributes:
        type: What its values are.
        children: The fields in it.
        metadata: Free text by key.
        is_encoded: Whether its values are places in a dictionary.
        is_pickled: Whether some versions of pyarrow unpickle its type, or a type in it.
    """

    type: Type
    children: tuple[Field, ...] = ()
    metadata: dict[str, str] = {}
    is_encoded: bool = False
    is_pickled: bool = False

    @property
    def extension(self) -> str:
        """Name of the extension type; empty if it has none."""
        return self.metadata.get(_EXTENSION, "")


class Field(msgspec.Struct, frozen=True):
    """One column, or a part of one.

    Attributes:
        name: As the file says.
        form: What it is.
    """

    name: str
    form: Form


class Schema(msgspec.Struct, frozen=True):
    """The columns of a file.

    Attributes:
        fields: The columns.
        metadata: Free text by key.
        is_big_endian: Whether elements have their highest byte first.
        r_texts: What R's arrow package saved of the table, for each time that there is such a text.
    """

    fields: tuple[Field, ...]
    metadata: dict[str, str]
    is_big_endian: bool
    r_texts: tuple[str, ...] = ()


def parse_schema(table: Table, nbytes: int) -> Schema:
    """Read the schema in a message of `nbytes` bytes."""
    most = nbytes // _NBYTES_PER_FIELD + 1
    fields = _parse_fields(_levels_of(tables_of(table, 1, most), most))
    metadata = parse_metadata(table, 2)
    r_texts = tuple(text for key, text in metadata if key == R_KEY)
    return Schema(tuple(fields), dict(metadata), table.number(0, "h") == 1, r_texts)


def parse_metadata(table: Table, field: int) -> list[tuple[str, str]]:
    """Return the free text of a table, with its keys."""
    return [(entry.text(0), entry.text(1)) for entry in table.tables(field)]


def _levels_of(tables: Tables, most: int) -> list[tuple[Tables, list[int]]]:
    """Return the fields, those in them, and so on, with how many each has; at most so many in all.

    One table may be in many places.
    """
    levels: list[tuple[Tables, list[int]]] = []
    while len(tables):
        if len(levels) > _MAX_DEPTH:
            raise LimitError("columns are nested too deeply", expected=f"at most {_MAX_DEPTH} levels")
        most -= len(tables)
        inner, n_children = tables.tables(5, most)
        levels.append((tables, n_children))
        tables = inner
    return levels


def _parse_fields(levels: list[tuple[Tables, list[int]]]) -> list[Field]:
    """Read all fields at once, and put the inner ones into those around them."""
    if not levels:
        return []
    tables = join_tables([tables for tables, _ in levels])
    entries, n_entries = tables.tables(6)
    pairs = list(zip(entries.texts(0), entries.texts(1), strict=True))
    rows = list(
        zip(tables.texts(0), _types_of(tables), tables.has(4).tolist(), _divided(pairs, n_entries), strict=True)
    )
    fields: list[Field] = []
    forms: dict[Any, Form] = {}
    stop = len(rows)
    for level, n_children in reversed(levels):
        start = stop - len(level)
        parts = _divided(fields, n_children)
        fields = [
            Field(name, _form_of(forms, found, is_encoded, texts, within))
            for (name, found, is_encoded, texts), within in zip(rows[start:stop], parts, strict=True)
        ]
        stop = start
    return fields


def _form_of(
    forms: dict[Any, Form], found: Type, is_encoded: bool, texts: list[tuple[str, str]], children: list[Field]
) -> Form:
    """Return a form, which is made once."""
    inner = tuple([(child.name, id(child.form)) for child in children]) if children else ()
    key = id(found), is_encoded, tuple(texts), inner
    form = forms.get(key)
    if form is None:
        is_pickled = _PICKLED in texts or any(child.form.is_pickled for child in children)
        form = forms[key] = Form(found, tuple(children), dict(texts), is_encoded, is_pickled)
    return form


def _divided(parts: list[Part], counts: list[int]) -> Iterator[list[Part]]:
    """Divide a list into lists of so many parts each."""
    start = 0
    for count in counts:
        yield parts[start : start + count]
        start += count


def _types_of(tables: Tables) -> list[Type]:
    """Return the type of each field; those with the same numbers are read once."""
    found: list[Any] = [None] * len(tables)
    numbers = tables.numbers(2, "u1")
    has_type = tables.has(3)
    for number in np.unique(numbers).tolist():
        places = np.flatnonzero(numbers == number)
        if not 0 < number < len(_NAMES) or not has_type[places].all():
            raise FormatError("a column has a type that Arrow does not have", found=f"number {number}")
        types = tables.among(places).table(3)
        codes = _NUMBERS_OF.get(_NAMES[number], ())
        columns = [types.numbers(field, code, _ABSENT).tolist() for field, code in enumerate(codes)]
        keys = list(zip(*columns, strict=True)) if columns else range(len(types))
        known: dict[Any, Type] = {}
        for which, (place, key) in enumerate(zip(places.tolist(), keys, strict=True)):
            if key not in known:
                known[key] = parse_type(number, types[which])
            found[place] = known[key]
    return found


def parse_type(number: int, table: Table | None) -> Type:
    """Return a type, given its number."""
    if not 0 < number < len(_NAMES) or table is None:
        raise FormatError("a column has a type that Arrow does not have", found=f"number {number}")
    kind = _NAMES[number]
    return Type(kind, **{"text": kind} | (_TYPES[kind](table) if kind in _TYPES else {}))


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


_ABSENT: Final = 2**40
"""In place of a number that is not there: more than any that is."""

_NUMBERS_OF: Final[dict[str, tuple[str, ...]]] = {
    "int": ("<i4", "u1"),
    "float": ("<i2",),
    "fixed_size_binary": ("<i4",),
    "fixed_size_list": ("<i4",),
}
"""Kind to the numbers that its type consists of; types of other kinds are read one by one."""

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

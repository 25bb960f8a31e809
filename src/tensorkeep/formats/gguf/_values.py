"""The keys of a GGUF header and their values, as plain data. Pure.

A value is a number, a bool, a text, or a tuple of these, nested if the file's arrays are. Text that is not UTF-8, as
in some vocabularies, is bytes.
"""

from __future__ import annotations

import struct
from typing import Any, Final, TypeAlias

from tensorkeep.errors import FormatError, LimitError
from tensorkeep.formats.gguf._window import HeaderWindow, TooShortError
from tensorkeep.limits import MAX_ATTRIBUTE_DEPTH, MAX_ATTRIBUTE_VALUES

ValueType: TypeAlias = str | list[Any]
"""`"u32"`; `"[u32]"` for an array, `"[[u32]]"` if the arrays in it have one type, else a list of their types."""

NUMBER_TYPES: Final = {
    0: ("u8", "B"),
    1: ("i8", "b"),
    2: ("u16", "H"),
    3: ("i16", "h"),
    4: ("u32", "I"),
    5: ("i32", "i"),
    6: ("f32", "f"),
    7: ("bool", "?"),
    10: ("u64", "Q"),
    11: ("i64", "q"),
    12: ("f64", "d"),
}
"""Number of a value type to its name and its code in `struct`."""

STRING: Final = 8
ARRAY: Final = 9
_MIN_STRING_NBYTES: Final = 8
_MIN_ARRAY_NBYTES: Final = 12
_MIN_ENTRY_NBYTES: Final = 13


class Values:
    """Reads values in one byte order, and counts them.

    Attributes:
        n_values: Values in arrays so far.
    """

    def __init__(self, order: str, file_nbytes: int) -> None:
        self._order = order
        self._file_nbytes = file_nbytes
        self._u64 = struct.Struct(f"{order}Q")
        self._u32 = struct.Struct(f"{order}I")
        self._array = struct.Struct(f"{order}IQ")
        self._numbers = {number: (name, struct.Struct(order + code)) for number, (name, code) in NUMBER_TYPES.items()}
        self.n_values = 0

    def entry(self, data: bytes, at: int) -> tuple[str, Any, ValueType, int]:
        """Return the key at a place, its value, the value's type, and where the next one begins."""
        raw, at = self._text_bytes(data, at)
        key = as_name(raw, "a key")
        (number,) = self._unpack(self._u32, data, at)
        try:
            return key, *self._value(data, at + 4, number, 0)
        except FormatError as error:
            raise FormatError(f"{error.message} under the key {key!r:.100}", **_facts(error)) from None

    def _value(self, data: bytes, at: int, number: int, depth: int) -> tuple[Any, ValueType, int]:
        if number == STRING:
            raw, at = self._text_bytes(data, at)
            return _text(raw), "string", at
        if number == ARRAY:
            return self._array_value(data, at, depth)
        name, code = self._number_type(number)
        (value,) = self._unpack(code, data, at)
        if name == "bool":
            _check_bools(data[at : at + 1])
        return value, name, at + code.size

    def _array_value(self, data: bytes, at: int, depth: int) -> tuple[Any, ValueType, int]:
        number, n = self._unpack(self._array, data, at)
        at += self._array.size
        least = {STRING: _MIN_STRING_NBYTES, ARRAY: _MIN_ARRAY_NBYTES}.get(number)
        least = self._number_type(number)[1].size if least is None else least
        if n * least > self._file_nbytes - at:
            raise FormatError("an array does not fit the file", found=f"{n:,} elements of {least} bytes or more")
        self.n_values += n
        if self.n_values > MAX_ATTRIBUTE_VALUES:
            raise LimitError(
                "the arrays of the header are too long together", expected=f"at most {MAX_ATTRIBUTE_VALUES:,} values"
            )
        if number == STRING:
            return (*self._texts(data, at, n),)
        if number == ARRAY:
            return self._arrays(data, at, n, depth + 1)
        name, code = self._number_type(number)
        stop = at + n * code.size
        if stop > len(data):
            raise TooShortError(stop)
        if name == "bool":
            _check_bools(data[at:stop])
        values = struct.unpack_from(f"{self._order}{n}{code.format[-1]}", data, at)
        return values, f"[{name}]", stop

    def _arrays(self, data: bytes, at: int, n: int, depth: int) -> tuple[Any, ValueType, int]:
        if depth > MAX_ATTRIBUTE_DEPTH:
            raise LimitError("arrays are nested too deeply", expected=f"at most {MAX_ATTRIBUTE_DEPTH} levels")
        values: list[Any] = []
        types: list[ValueType] = []
        for _ in range(n):
            value, type_, at = self._array_value(data, at, depth)
            values.append(value)
            types.append(type_)
        if not types:
            return (), "[array]", at
        is_uniform = isinstance(types[0], str) and types.count(types[0]) == n
        return tuple(values), f"[{types[0]}]" if is_uniform else types, at

    def _texts(self, data: bytes, at: int, n: int) -> tuple[Any, ValueType, int]:
        """Read an array of texts in one pass: a vocabulary has 150,000."""
        raw: list[bytes] = []
        unpack, append = self._u64.unpack_from, raw.append
        try:
            for _ in range(n):
                start = at + 8
                at = start + unpack(data, at)[0]
                append(data[start:at])
        except (struct.error, OverflowError):
            raise TooShortError(at + 8) from None
        if at > len(data):
            raise TooShortError(at)
        try:
            return tuple([text.decode() for text in raw]), "[string]", at
        except UnicodeDecodeError:
            return tuple(map(_text, raw)), "[string]", at

    def _text_bytes(self, data: bytes, at: int) -> tuple[bytes, int]:
        (nbytes,) = self._unpack(self._u64, data, at)
        stop = at + 8 + nbytes
        if stop > len(data):
            raise TooShortError(stop)
        return data[at + 8 : stop], stop

    def _number_type(self, number: int) -> tuple[str, struct.Struct]:
        found = self._numbers.get(number)
        if found is None:
            raise FormatError("a value of unknown type", expected="0 to 12", found=str(number))
        return found

    def _unpack(self, code: struct.Struct, data: bytes, at: int) -> tuple[Any, ...]:
        if at + code.size > len(data):
            raise TooShortError(at + code.size)
        return code.unpack_from(data, at)


def read_entries(
    window: HeaderWindow, at: int, n: int, order: str
) -> tuple[dict[str, Any], dict[str, ValueType], int]:
    """Read the keys of a header: their values, their types, and where the tensors begin."""
    if n * _MIN_ENTRY_NBYTES > window.file_nbytes - at:
        raise FormatError("the header declares more keys than fit the file", found=f"{n:,}")
    values: dict[str, Any] = {}
    types: dict[str, ValueType] = {}
    reader = Values(order, window.file_nbytes)
    while len(values) < n:
        n_before = reader.n_values
        try:
            key, value, type_, stop = reader.entry(window.data, at)
        except TooShortError as error:
            reader.n_values = n_before
            window.grow(error.stop)
            continue
        if key in values:
            raise FormatError("a key occurs twice", found=f"{key!r:.100}")
        values[key], types[key], at = value, type_, stop
    return values, types, at


def as_name(raw: bytes, what: str) -> str:
    """Decode a name."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise FormatError(f"{what} is not UTF-8", found=f"{raw!r:.100}") from None


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _check_bools(raw: bytes) -> None:
    if raw.translate(None, b"\0\1"):
        raise FormatError("a bool that is neither 0 nor 1")


def _facts(error: FormatError) -> dict[str, str | None]:
    return {"expected": error.expected, "found": error.found, "hint": error.hint}

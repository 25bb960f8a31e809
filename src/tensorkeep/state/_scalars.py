"""Values that contain no others, and their nodes: one table for writing, one for reading.

Values that JSON has are written as such; any other is an array of a tag and its parts.
"""

from __future__ import annotations

import math
import re
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path, PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from types import EllipsisType, NoneType
from typing import Any, Final, TypeVar
from uuid import UUID

from tensorkeep.state._values import Node

PLAIN: Final = frozenset({NoneType, bool, int, float, str})
"""Types of nodes that are the value itself."""

_MAX_JSON_INTEGER: Final = 2**53 - 1
"""The largest integer that every JSON reader represents exactly."""

_MAX_FRACTION_BITS: Final = 2**14
"""Most bits of a fraction's terms: reading takes time quadratic in their length, 60 us at this limit."""

_Moment = TypeVar("_Moment", datetime, time)

_NAN: Final = "7ff8000000000000"
_HEXADECIMAL: Final = re.compile(r"-?0x[0-9a-f]+")


def text_node(text: str) -> Node:
    """Return the node of a text."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return ["str", base64_text(text.encode("utf-8", "surrogatepass"))]
    return text


def text_of(node: Any) -> str:
    """Return the text that a node represents."""
    if type(node) is str:
        return node
    return bytes_of(_part_of(node, "str")).decode("utf-8", "surrogatepass")


def integer_node(number: int) -> Node:
    """Return the node of an integer."""
    return number if -_MAX_JSON_INTEGER <= number <= _MAX_JSON_INTEGER else ["int", hex(number)]


def integer_of(node: Any) -> int:
    """Return the integer that a node represents."""
    if type(node) is int:
        return node
    text = _part_of(node, "int")
    if type(text) is not str or not _HEXADECIMAL.fullmatch(text):
        raise ValueError("expected an integer in hexadecimal digits")
    return int(text, 16)


def base64_text(data: bytes | bytearray) -> str:
    """Return bytes as base64 text."""
    return b64encode(data).decode("ascii")


def bytes_of(text: Any) -> bytes:
    """Return the bytes that a base64 text represents."""
    if type(text) is not str:
        raise ValueError("expected base64")
    return b64decode(text, validate=True)


def fraction_node(number: Fraction) -> Node:
    """Return the node of a fraction."""
    if max(number.numerator.bit_length(), number.denominator.bit_length()) > _MAX_FRACTION_BITS:
        return None
    return ["Fraction", integer_node(number.numerator), integer_node(number.denominator)]


def timezone_node(zone: timezone) -> Node:
    """Return the node of a fixed offset from UTC."""
    offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
    return ["timezone", _timedelta_node(offset), text_node(name[0]) if name else None]


def timezone_of(node: Any) -> timezone:
    """Return the offset from UTC that a node represents."""
    if type(node) is not list or len(node) != 3 or node[0] != "timezone":
        raise ValueError("expected a timezone")
    _, offset, name = node
    return timezone(timedelta_of(offset)) if name is None else timezone(timedelta_of(offset), text_of(name))


def timedelta_of(node: Any) -> timedelta:
    """Return the timedelta that a node represents."""
    if type(node) is not list or len(node) != 4 or node[0] != "timedelta":
        raise ValueError("expected a timedelta")
    made = timedelta(*map(_small_integer, node[1:]))
    if [made.days, made.seconds, made.microseconds] != node[1:]:
        raise ValueError("a timedelta is not in its normal form")
    return made


def _part_of(node: Any, tag: str) -> Any:
    if type(node) is not list or len(node) != 2 or node[0] != tag:
        raise ValueError(f"expected {tag}")
    return node[1]


def _small_integer(node: Any) -> int:
    if type(node) is not int:
        raise ValueError("expected an integer")
    return node


def _float_node(number: float) -> Node:
    if math.isfinite(number):
        return number
    if math.isinf(number):
        return ["float", "inf" if number > 0 else "-inf"]
    bits = struct.pack(">d", number).hex()
    return ["float", "nan" if bits == _NAN else bits]


def _float_of(node: Any) -> float:
    if type(node) is float:
        return node
    text = _part_of(node, "float")
    if text in {"nan", "inf", "-inf"}:
        return float(text)
    if type(text) is not str or len(text) != 16:
        raise ValueError("expected nan, inf, -inf or 16 hexadecimal digits")
    number: float = struct.unpack(">d", bytes.fromhex(text))[0]
    if not math.isnan(number):
        raise ValueError("only NaN is written by its bits")
    return number


def _timedelta_node(span: timedelta) -> Node:
    return ["timedelta", span.days, span.seconds, span.microseconds]


def _fraction_of(numerator: Any, denominator: Any) -> Fraction:
    terms = integer_of(numerator), integer_of(denominator)
    if max(map(int.bit_length, terms)) > _MAX_FRACTION_BITS:
        raise ValueError("a fraction is too long")
    made = Fraction(*terms)
    if (made.numerator, made.denominator) != terms:
        raise ValueError("a fraction is not in its lowest terms")
    return made


def _moment_of(kind: type[_Moment], text: Any, fold: Any, zone: Any) -> _Moment:
    made = kind.fromisoformat(text)
    if made.tzinfo is not None or made.isoformat() != text or type(fold) is not int:
        raise ValueError("expected a time like 2026-11-21T23:59:59.000001 without a zone, and a fold")
    return made.replace(fold=fold, tzinfo=None if zone is None else timezone_of(zone))


def _date_of(text: Any) -> date:
    made = date.fromisoformat(text)
    if made.isoformat() != text:
        raise ValueError("expected a date like 2026-11-21")
    return made


def _uuid_of(text: Any) -> UUID:
    made = UUID(text_of(text))
    if str(made) != text:
        raise ValueError("expected a UUID in lower case with hyphens")
    return made


def _itself(value: Any) -> Any:
    return value


def _path_node(path: Path) -> Node:
    return ["Path", text_node(str(path))]


SCALARS: Final[dict[type, Callable[[Any], Node]]] = {
    str: text_node,
    int: integer_node,
    float: _float_node,
    bool: _itself,
    NoneType: _itself,
    complex: lambda value: ["complex", _float_node(value.real), _float_node(value.imag)],
    range: lambda value: ["range", *map(integer_node, (value.start, value.stop, value.step))],
    EllipsisType: lambda _: ["Ellipsis"],
    date: lambda value: ["date", value.isoformat()],
    timedelta: _timedelta_node,
    timezone: timezone_node,
    Decimal: lambda value: ["Decimal", str(value)],
    UUID: lambda value: ["UUID", str(value)],
    PosixPath: _path_node,
    WindowsPath: _path_node,
    PurePosixPath: lambda value: ["PurePosixPath", text_node(str(value))],
    PureWindowsPath: lambda value: ["PureWindowsPath", text_node(str(value))],
}
"""Exact type to the function that makes its node; none of them fails."""

SCALAR_TAGS: Final[dict[str, Callable[..., Any]]] = {
    "str": lambda text: bytes_of(text).decode("utf-8", "surrogatepass"),
    "int": lambda text: integer_of(["int", text]),
    "float": lambda text: _float_of(["float", text]),
    "complex": lambda real, imaginary: complex(_float_of(real), _float_of(imaginary)),
    "range": lambda start, stop, step: range(integer_of(start), integer_of(stop), integer_of(step)),
    "Ellipsis": lambda: ...,
    "date": _date_of,
    "timedelta": lambda *parts: timedelta_of(["timedelta", *parts]),
    "timezone": lambda *parts: timezone_of(["timezone", *parts]),
    "Decimal": lambda text: Decimal(text_of(text)),
    "Fraction": _fraction_of,
    "time": partial(_moment_of, time),
    "datetime": partial(_moment_of, datetime),
    "UUID": _uuid_of,
    "Path": lambda text: Path(text_of(text)),
    "PurePosixPath": lambda text: PurePosixPath(text_of(text)),
    "PureWindowsPath": lambda text: PureWindowsPath(text_of(text)),
}
"""Tag to the function that makes the value; it raises ValueError, TypeError or ArithmeticError for wrong parts."""

"""Names of Python's standard library in the closed table, each with the function of ours that replaces a call."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Final

from tensorkeep.errors import PickleError
from tensorkeep.formats.pickles.values import DefaultDict, Deque, Name, Namespace, Unknown

_FACTORIES: dict[str, Callable[[], Any]] = {
    "builtins.bool": bool,
    "builtins.dict": dict,
    "builtins.float": float,
    "builtins.int": int,
    "builtins.list": list,
    "builtins.set": set,
    "builtins.str": str,
    "builtins.tuple": tuple,
    "collections.Counter": Counter,
    "collections.OrderedDict": OrderedDict,
}
_DECIMAL = re.compile(
    r"[+-]?(?:[0-9]{1,1000}(?:\.[0-9]{0,1000})?|\.[0-9]{1,1000}|Infinity|s?NaN)(?:E[+-]?[0-9]{1,9})?"
)
_REQUIRED: Final = object()


def _exactly(value: Any, *kinds: type) -> Any:
    """Return a value, if its type is exactly one of some types."""
    if type(value) not in kinds:
        raise TypeError(f"expected {' or '.join(kind.__name__ for kind in kinds)}, found {type(value).__name__}")
    return value


def _ordered_dict(pairs: Any = ()) -> OrderedDict[Any, Any]:
    """Pickles of Python 2 pass the pairs; `HASHING` made the context check their keys."""
    made = OrderedDict(_exactly(pairs, tuple, list))
    if len(made) != len(pairs):
        raise PickleError("duplicate key in a dict", found=f"{len(pairs) - len(made)} times")
    return made


def _keys_of_pairs(pairs: Any) -> list[Any]:
    if any(type(pair) not in {list, tuple} or len(pair) != 2 for pair in _exactly(pairs, tuple, list)):
        raise TypeError("expected pairs of key and value")
    return [key for key, _ in pairs]


def _members(values: Any) -> list[Any]:
    return list(_exactly(values, tuple, list))


def _default_dict(factory: Any = None, *rest: Any) -> Any:
    make = _FACTORIES.get(factory.qualified_name) if type(factory) is Name else None
    if rest or (factory is not None and make is None):
        return Unknown("collections", "defaultdict", (factory, *rest))
    return DefaultDict(make)


def _deque(values: Any = (), maxlen: Any = None) -> Deque:
    return Deque(_exactly(values, list, tuple), maxlen if maxlen is None else _exactly(maxlen, int))


def _counter(counts: Any = None) -> Counter[Any]:
    counter: Counter[Any] = Counter()
    if counts is not None:
        dict.update(counter, _exactly(counts, dict))
    return counter


def _set(values: Any = ()) -> set[Any]:
    return set(_exactly(values, list, tuple))


def _frozenset(values: Any = ()) -> frozenset[Any]:
    return frozenset(_exactly(values, list, tuple))


def _encoded(text: Any, encoding: Any = _REQUIRED) -> bytes:
    """Protocol 2 has no bytes and writes them as text, one character per byte."""
    if _exactly(encoding, str) not in {"latin1", "latin-1"}:
        raise ValueError(f"expected the encoding latin1, found {encoding!r:.100}")
    encoded: bytes = _exactly(text, str).encode("latin-1")
    return encoded


def _bytes(*args: Any) -> bytes:
    if args:
        raise TypeError("expected no arguments, as for empty bytes")
    return b""


def _bytearray(data: Any = b"", encoding: Any = None) -> bytearray:
    if encoding is not None:
        return bytearray(_encoded(data, encoding))
    return bytearray(_exactly(data, bytes))


def _complex(real: Any, imag: Any) -> complex:
    return complex(_exactly(real, float, int), _exactly(imag, float, int))


def _range(start: Any, stop: Any, step: Any = 1) -> range:
    return range(_exactly(start, int), _exactly(stop, int), _exactly(step, int))


def _slice(start: Any, stop: Any, step: Any) -> slice:
    optional = (int, type(None))
    return slice(_exactly(start, *optional), _exactly(stop, *optional), _exactly(step, *optional))


def _reconstructed(cls: Any, base: Any, state: Any) -> Any:
    """Protocols 0 and 1 create every instance of a class this way."""
    is_object = isinstance(base, Unknown) and base.qualified_name == "builtins.object"
    if not isinstance(cls, Unknown) or not cls.is_reference or not is_object or state is not None:
        return Unknown("copyreg", "_reconstructor", (cls, base, state))
    if type(cls) is Name and cls.call is _namespace:
        return Namespace()
    return Unknown(cls.module, cls.name, ())


def _namespace(*args: Any) -> Namespace:
    if args:
        raise TypeError("expected no arguments: attributes follow as state")
    return Namespace()


def _posix_path(*parts: Any) -> str:
    return str(PurePosixPath(*(_exactly(part, str) for part in parts)))


def _windows_path(*parts: Any) -> str:
    return str(PureWindowsPath(*(_exactly(part, str) for part in parts)))


def _packed(data: Any) -> bytes:
    """Dates and times are a few bytes; Python 2 wrote them as text."""
    return data if type(data) is bytes else _exactly(data, str).encode("latin-1")


def _datetime(data: Any, zone: Any = None) -> datetime:
    return datetime(_sized(_packed(data), 10), *([_exactly(zone, timezone)] if zone is not None else []))  # type: ignore[arg-type]


def _time(data: Any, zone: Any = None) -> time:
    return time(_sized(_packed(data), 6), *([_exactly(zone, timezone)] if zone is not None else []))  # type: ignore[arg-type]


def _date(data: Any) -> date:
    return date(_sized(_packed(data), 4))  # type: ignore[call-arg,arg-type]


def _sized(data: bytes, nbytes: int) -> bytes:
    if len(data) != nbytes:
        raise ValueError(f"expected {nbytes} bytes, found {len(data)}")
    return data


def _timedelta(days: Any = 0, seconds: Any = 0, microseconds: Any = 0) -> timedelta:
    return timedelta(_exactly(days, int), _exactly(seconds, int), _exactly(microseconds, int))


def _timezone(offset: Any, name: Any = None) -> timezone:
    _exactly(offset, timedelta)
    return timezone(offset) if name is None else timezone(offset, _exactly(name, str))


def _decimal(text: Any) -> Decimal:
    if _DECIMAL.fullmatch(_exactly(text, str)) is None:
        raise ValueError("expected the text of a decimal number")
    return Decimal(text)


HASHING: dict[Callable[..., Any], Callable[[Any], list[Any]]] = {
    _set: _members,
    _frozenset: _members,
    _ordered_dict: _keys_of_pairs,
}
"""Functions that hash values, each with one that returns these values of its first argument."""

EMPTY_WHEN_NEW: frozenset[Callable[..., Any]] = frozenset({
    _bytearray,
    _counter,
    _default_dict,
    _deque,
    _ordered_dict,
    _set,
})
"""Classes whose `__new__` ignores arguments: only a call passes them on to `__init__`."""

FUNCTIONS: frozenset[Callable[..., Any]] = frozenset({_encoded, _reconstructed})
"""Plain functions, which have no `__new__`."""

_PATHS: dict[tuple[str, str], Callable[..., Any] | None] = {
    (module, name): _windows_path if "Windows" in name else _posix_path
    for module in ("pathlib", "pathlib._local")
    for name in ("Path", "PosixPath", "PurePath", "PurePosixPath", "PureWindowsPath", "WindowsPath")
}
_NAMESPACES: dict[tuple[str, str], Callable[..., Any] | None] = {
    ("argparse", "Namespace"): _namespace,
    ("types", "SimpleNamespace"): _namespace,
    ("lightning.fabric.utilities.data", "AttributeDict"): _namespace,
    ("lightning.pytorch.utilities.parsing", "AttributeDict"): _namespace,
    ("lightning_fabric.utilities.data", "AttributeDict"): _namespace,
    ("pytorch_lightning.utilities.parsing", "AttributeDict"): _namespace,
}
_MENTIONED: dict[tuple[str, str], Callable[..., Any] | None] = {
    ("builtins", name): None
    for name in (
        "bool",
        "dict",
        "float",
        "int",
        "list",
        "object",
        "str",
        "type",
        "NotImplemented",
        "Ellipsis",
    )
}
"""Types that are data when only named; an instance of one is still an `Unknown`."""

CALLS: dict[tuple[str, str], Callable[..., Any] | None] = (
    _MENTIONED
    | _PATHS
    | _NAMESPACES
    | {
        ("_codecs", "encode"): _encoded,
        ("builtins", "bytearray"): _bytearray,
        ("builtins", "bytes"): _bytes,
        ("builtins", "complex"): _complex,
        ("builtins", "frozenset"): _frozenset,
        ("builtins", "range"): _range,
        ("builtins", "set"): _set,
        ("builtins", "slice"): _slice,
        ("collections", "Counter"): _counter,
        ("collections", "OrderedDict"): _ordered_dict,
        ("collections", "defaultdict"): _default_dict,
        ("collections", "deque"): _deque,
        ("copyreg", "_reconstructor"): _reconstructed,
        ("datetime", "date"): _date,
        ("datetime", "datetime"): _datetime,
        ("datetime", "time"): _time,
        ("datetime", "timedelta"): _timedelta,
        ("datetime", "timezone"): _timezone,
        ("decimal", "Decimal"): _decimal,
    }
)
"""Module and name to the function of ours that a call is replaced by; None if a call gives an `Unknown`."""

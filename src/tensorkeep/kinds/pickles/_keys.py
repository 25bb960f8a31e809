"""Dotted names for values in nested data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from typing import Any, Final, TypeVar

from tensorkeep.formats.pickles import TensorRecord, Unknown, short_repr
from tensorkeep.limits import MAX_NAME_LENGTH

_T = TypeVar("_T")

PLAIN: Final = frozenset({str, int, float, bool, bytes, type(None)})
"""Types of values that contain no other values."""


def joined(name: str, part: str) -> str:
    """Append a part to a dotted name; a name longer than any honest one is truncated."""
    return (f"{name}.{part}" if name else part)[:MAX_NAME_LENGTH]


def key_text(key: Any) -> str:
    """Return the text for a dict key in a dotted name."""
    if type(key) is str:
        return key
    if isinstance(key, Unknown):
        return key.qualified_name
    if type(key) is TensorRecord:
        return f"tensor {key.storage.key}" if key.storage else "tensor"
    return short_repr(key)


def numbered(named: Iterable[tuple[str, _T]], taken: Container[str] = ()) -> dict[str, _T]:
    """Return a dict in which repeated names get a number, such as `#2`."""
    found: dict[str, _T] = {}
    n_of_name: Counter[str] = Counter()
    for name, value in named:
        unique = name
        while unique in found or unique in taken:
            n_of_name[name] += 1
            unique = f"{name}#{n_of_name[name] + 1}"
        found[unique] = value
    return found

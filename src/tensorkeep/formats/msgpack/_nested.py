"""Nested dicts and lists: copied with other leaves, and cut to a part. Pure.

A dotted name is keys and places, joined by dots. Files have a bounded depth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tensorkeep.limits import MAX_NAME_LENGTH

CHUNKED: Final = "__msgpack_chunked_array__"
"""The key by which Flax marks a dict that is an array."""

LEFT_OUT: Final = object()
"""What `rebuilt` leaves out of dicts, while in lists it becomes None."""


def rebuilt(value: Any, make: Callable[[Any, str], Any], name: str = "") -> Any:
    """Copy nested data; each leaf becomes what `make` returns for it and its dotted name.

    Dicts that are arrays in chunks, and empty containers, are leaves too.
    """
    if type(value) is dict and value and CHUNKED not in value:
        made = {}
        for key, child in value.items():  # no comprehension: it would take one more frame for each level
            item = rebuilt(child, make, _joined(name, key))
            if item is not LEFT_OUT:
                made[key] = item
        return made
    if type(value) is list and value:
        items = []
        for place, child in enumerate(value):
            item = rebuilt(child, make, _joined(name, place))
            items.append(None if item is LEFT_OUT else item)
        return items
    return make(value, name)


def part_of(value: Any, is_wanted: Callable[[str], object], name: str = "") -> Any:
    """Return the part of nested data whose dotted names are wanted, or `LEFT_OUT`."""
    if is_wanted(name):
        return value
    if type(value) is dict:
        made = {}
        for key, child in value.items():
            part = part_of(child, is_wanted, _joined(name, key))
            if part is not LEFT_OUT:
                made[key] = part
        return made or LEFT_OUT
    if type(value) is list:
        items = []
        n_wanted = 0
        for place, child in enumerate(value):
            part = part_of(child, is_wanted, _joined(name, place))
            n_wanted += part is not LEFT_OUT
            items.append(None if part is LEFT_OUT else part)
        return items if n_wanted else LEFT_OUT
    return LEFT_OUT


def _joined(name: str, key: Any) -> str:
    return (f"{name}.{key}" if name else str(key))[:MAX_NAME_LENGTH]

"""Placeholders in a loaded state: each names an object that was not created."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from tensorkeep.arrays import EncodedObject
from tensorkeep.errors import UnsupportedError
from tensorkeep.formats.pickles import Unknown
from tensorkeep.state import NamedData

Placeholder: TypeAlias = NamedData | Unknown | EncodedObject

_MAX_PLACE: Final = 200
"""Characters of a place that are kept: in deeply nested data, memory would be quadratic in the depth."""


def refuse_placeholders(value: Any, place: str) -> None:
    """Refuse a state that holds a placeholder."""
    found = find_placeholder(value, place)
    if found is not None:
        where, item = found
        if isinstance(item, NamedData):
            name, hint = item.class_name, "Pass its class in classes="
        else:
            name, hint = repr(item), "Load the checkpoint, and use only its data"
        raise UnsupportedError(
            f"`{where}` was saved as an object, which is not created on loading", found=name, hint=hint
        )


def find_placeholder(value: Any, place: str) -> tuple[str, Placeholder] | None:
    """Return the place of a placeholder in nested data, such as `"model.0"`, and the placeholder."""
    pending: list[tuple[str, Any]] = [(place, value)]
    seen: set[int] = set()
    while pending:
        where, item = pending.pop()
        if isinstance(item, NamedData | Unknown | EncodedObject):
            return where, item
        if isinstance(item, Mapping | list | tuple | deque | set | frozenset) and id(item) not in seen:
            seen.add(id(item))
            items = item.items() if isinstance(item, Mapping) else enumerate(item)
            pending += [(f"{where}.{key}"[:_MAX_PLACE], child) for key, child in items]
    return None

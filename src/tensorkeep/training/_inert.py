"""Values that stand for objects which were not made, where an object would go on with them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from tensorkeep.arrays import EncodedObject
from tensorkeep.errors import UnsupportedError
from tensorkeep.formats.pickles import Unknown
from tensorkeep.state import NamedData


def refuse_placeholders(value: Any, path: str) -> None:
    """Make sure that nothing in a state only stands for an object."""
    found = next(_inert(value, path), None)
    if found is not None:
        place, item = found
        named = isinstance(item, NamedData)
        raise UnsupportedError(
            f"`{place}` was saved as an object, and is not made again by itself",
            found=item.class_name if named else repr(item),
            hint="Pass its class in classes=" if named else "Load the checkpoint, and take from it what is data",
        )


def _inert(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    pending: list[tuple[str, Any]] = [(path, value)]
    seen: set[int] = set()
    while pending:
        place, item = pending.pop()
        if isinstance(item, NamedData | Unknown | EncodedObject):
            yield place, item
        elif isinstance(item, Mapping | list | tuple | deque | set | frozenset) and id(item) not in seen:
            seen.add(id(item))
            items = item.items() if isinstance(item, Mapping) else enumerate(item)
            pending += [(f"{place}.{key}", child) for key, child in items]

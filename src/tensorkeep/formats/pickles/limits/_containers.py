"""What opcodes put into containers: only into those of plain data, and into the items of an `Unknown`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tensorkeep.errors import PickleError
from tensorkeep.formats.pickles.limits._graph import DICTS
from tensorkeep.formats.pickles.limits._keys import KeyGuard
from tensorkeep.formats.pickles.values import Deque, Unknown

_SEQUENCES = frozenset({list, Deque})


def extend(target: Any, values: list[Any]) -> None:
    """Append values, or keep those that an unknown object would have been given."""
    if type(target) in _SEQUENCES:
        target.extend(values)
    else:
        _items_of(target, list).extend(values)


def set_items(target: Any, pairs: list[Any], guard: KeyGuard) -> None:
    """Set values by key, or keep those that an unknown object would have been given."""
    into = target if type(target) in DICTS else _items_of(target, dict)
    keys = pairs[::2]
    if len(pairs) % 2:
        raise PickleError("a key has no value")
    guard.check(into, keys)
    n_expected = len(into) + len(keys)
    update = dict.update if type(into) is Counter else type(into).update  # Counter's own would count
    update(into, zip(keys, pairs[1::2], strict=True))
    if len(into) != n_expected:
        raise PickleError("a key stands twice in one dict", found=f"{n_expected - len(into)} times")


def add_items(target: Any, values: list[Any], guard: KeyGuard) -> None:
    """Add values to a set."""
    if type(target) is set:
        guard.check(target, values)
        target.update(values)
    else:
        _items_of(target, list).extend(values)


def _items_of(target: Any, kind: type) -> Any:
    if type(target) is not Unknown or target.is_reference:
        raise PickleError("items are given to what has none", found=type(target).__name__)
    if target.items is None:
        object.__setattr__(target, "items", kind())
    if type(target.items) is not kind:
        raise PickleError("items of two kinds are given to one object", found=target.qualified_name)
    return target.items

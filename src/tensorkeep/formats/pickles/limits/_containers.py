"""Adding items: to plain containers of exactly known types, and to the recorded items of an `Unknown`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tensorkeep.errors import PickleError
from tensorkeep.formats.pickles.limits._graph import DICTS
from tensorkeep.formats.pickles.limits._keys import KeyGuard
from tensorkeep.formats.pickles.values import Deque, Unknown

_SEQUENCES = frozenset({list, Deque})


def extend(target: Any, values: list[Any]) -> None:
    """Append values, or record them if the target is unknown."""
    if type(target) in _SEQUENCES:
        target.extend(values)
    else:
        _items_of(target, list).extend(values)


def set_items(target: Any, pairs: list[Any], guard: KeyGuard) -> None:
    """Set values by key, or record them if the target is unknown."""
    into = target if type(target) in DICTS else _items_of(target, dict)
    keys = pairs[::2]
    if len(pairs) % 2:
        raise PickleError("a key has no value")
    guard.check(into, keys)
    n_expected = len(into) + len(keys)
    update = dict.update if type(into) is Counter else type(into).update  # Counter.update would add counts
    update(into, zip(keys, pairs[1::2], strict=True))
    if len(into) != n_expected:
        raise PickleError("duplicate key in a dict", found=f"{n_expected - len(into)} times")


def add_items(target: Any, values: list[Any], guard: KeyGuard) -> None:
    """Add values to a set, or record them if the target is unknown."""
    if type(target) is set:
        guard.check(target, values)
        target.update(values)
    else:
        _items_of(target, list).extend(values)


def _items_of(target: Any, kind: type) -> Any:
    if type(target) is not Unknown or target.is_reference:
        raise PickleError("items are added to something that cannot have any", found=type(target).__name__)
    if target.items is None:
        object.__setattr__(target, "items", kind())
    if type(target.items) is not kind:
        raise PickleError("one object is given list items and dict items", found=target.qualified_name)
    return target.items

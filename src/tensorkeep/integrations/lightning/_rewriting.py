"""Nested data with some values replaced; containers in which nothing changes stay the same objects."""

from __future__ import annotations

from argparse import Namespace
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from types import NoneType, SimpleNamespace
from typing import Any, Final

from tensorkeep.limits import MAX_STATE_DEPTH

_PLAIN: Final = frozenset({bool, int, float, str, NoneType})


class Rewriter:
    """One walk through nested data, which visits each object once, however many places it is in.

    Keys of dicts, members of sets and fields of objects are left alone. So are values that are nested too deep, or in
    themselves: no file can hold those.
    """

    def __init__(self, replace: Callable[[Any], Any]) -> None:
        self._replace = replace
        self._depth = 0
        self._made: dict[int, tuple[Any, Any]] = {}  # keeps the values alive, so that ids are not reused

    def rewrite(self, whole: Any) -> Any:
        """Rewrite nested data, and drop references to it: `replace` may refer to this object, which makes a cycle."""
        try:
            return self.value(whole)
        finally:
            self._made.clear()

    def value(self, value: Any) -> Any:
        """Rewrite a part of the data; for use by `replace`."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        known = self._made.get(id(value))
        if known is not None:
            return known[1]
        self._made[id(value)] = value, value
        rewrite = _CONTAINERS.get(kind)
        if rewrite is None:
            made = self._replace(value)
        elif self._depth > MAX_STATE_DEPTH:
            return value
        else:
            self._depth += 1
            made = rewrite(self, value)
            self._depth -= 1
        self._made[id(value)] = value, made
        return made

    def _items(self, items: Iterable[Any]) -> list[Any] | None:
        """Rewrite values; return None if none changed."""
        made = []
        is_changed = False
        for item in items:
            new = item if type(item) in _PLAIN else self.value(item)
            is_changed |= new is not item
            made.append(new)
        return made if is_changed else None

    def _dict(self, value: dict[Any, Any]) -> dict[Any, Any]:
        made = self._items(value.values())
        return value if made is None else dict(zip(value, made, strict=True))

    def _ordered_dict(self, value: OrderedDict[Any, Any]) -> OrderedDict[Any, Any]:
        made = self._items(value.values())
        if made is None:
            return value
        other = OrderedDict(zip(value, made, strict=True))
        vars(other).update(vars(value))  # torch keeps versions of modules there
        return other

    def _default_dict(self, value: defaultdict[Any, Any]) -> defaultdict[Any, Any]:
        made = self._items(value.values())
        return value if made is None else defaultdict(value.default_factory, zip(value, made, strict=True))

    def _sequence(self, value: Any) -> Any:
        made = self._items(value)
        return value if made is None else type(value)(made)

    def _deque(self, value: deque[Any]) -> deque[Any]:
        made = self._items(value)
        return value if made is None else deque(made, value.maxlen)

    def _namespace(self, value: Any) -> Any:
        made = self._items(vars(value).values())
        if made is None:
            return value
        other = type(value)()
        vars(other).update(zip(vars(value), made, strict=True))
        return other


_CONTAINERS: Final[dict[type, Callable[[Rewriter, Any], Any]]] = {
    dict: Rewriter._dict,
    OrderedDict: Rewriter._ordered_dict,
    defaultdict: Rewriter._default_dict,
    list: Rewriter._sequence,
    tuple: Rewriter._sequence,
    deque: Rewriter._deque,
    Namespace: Rewriter._namespace,
    SimpleNamespace: Rewriter._namespace,
}

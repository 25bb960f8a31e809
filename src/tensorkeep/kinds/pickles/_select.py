"""A part of a nested value: the selected values, in new containers. Pure.

What is selected whole stays the same object, so tensors and objects in several places stay one.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, Final

from tensorkeep.errors import LimitError
from tensorkeep.formats.pickles import DICTS, CompositeRecord, DefaultDict, Deque, Unknown
from tensorkeep.kinds.pickles._flat import MAX_VISITS, MODULE_PARTS, is_module
from tensorkeep.kinds.pickles._keys import PLAIN, joined, key_text
from tensorkeep.limits import MAX_NAMES_LENGTH

NOTHING: Final = object()
"""The part of a value in which nothing is selected."""


def selected(value: Any, wanted: Callable[[str], bool], name: str = "") -> Any:
    """Return the part of a value, itself called `name`, whose dotted names are wanted; `NOTHING` if none is."""
    try:
        return _Selection(wanted).part(value, name)
    except RecursionError:
        raise LimitError("the value is nested too deeply", hint="Load it from a shallower call stack") from None


class _Selection:
    """One walk. Other entries of dicts are missing from the part; other items of lists and tuples are None."""

    def __init__(self, wanted: Callable[[str], bool]) -> None:
        self._wanted = wanted
        self._names_length = 0
        self._n_visits: Counter[int] = Counter()
        self._open: set[int] = set()

    def part(self, node: Any, name: str) -> Any:
        """Return the selected part of a value."""
        self._names_length += len(name)
        if self._names_length > MAX_NAMES_LENGTH:
            raise LimitError(
                "the names of values are too long in total", expected=f"at most {MAX_NAMES_LENGTH:,} characters"
            )
        if self._wanted(name):
            return node
        kind = type(node)
        if kind in PLAIN:
            return NOTHING
        if kind in DICTS:
            return self._entries(node, name)
        if kind in {list, tuple, Deque}:
            return self._items(node, kind, name)
        if kind is Unknown:
            return self._of_unknown(node, name)
        is_chosen = kind is CompositeRecord and any(self._wanted(joined(name, part)) for part in node.parts)
        return node if is_chosen else NOTHING

    def _entries(self, node: Any, name: str, transparent: tuple[str, ...] = ()) -> Any:
        """Select from a dict; the names of what is in a transparent entry do not mention it."""
        chosen = _empty_like(node)
        for key, child in node.items():
            part = self.part(child, name if key in transparent else joined(name, key_text(key)))
            if part is not NOTHING:
                chosen[key] = part
        if type(node) is OrderedDict and vars(node):
            attributes = self._entries(vars(node), name)
            if attributes is not NOTHING:
                vars(chosen).update(attributes)
                return chosen
        return chosen if chosen else NOTHING

    def _items(self, node: Any, kind: type, name: str) -> Any:
        parts = []
        for place, child in enumerate(node):
            parts.append(self.part(child, joined(name, str(place))))
        if all(part is NOTHING for part in parts):
            return NOTHING
        items = [_or(part, None) for part in parts]
        return Deque(items, node.maxlen) if kind is Deque else kind(items)

    def _of_unknown(self, node: Unknown, name: str) -> Any:
        """Select from an object that was not built; it may contain itself."""
        self._n_visits[id(node)] += 1
        if id(node) in self._open or self._n_visits[id(node)] > MAX_VISITS:
            return NOTHING
        self._open.add(id(node))
        args = NOTHING if node.args is None else self._items(node.args, tuple, name)
        state = self._contents(node.state, name)
        items = self._contents(node.items, name)
        self._open.remove(id(node))
        if args is NOTHING and state is NOTHING and items is NOTHING:
            return NOTHING
        none = None if node.args is None else ()
        return Unknown(node.module, node.name, _or(args, none), _or(state, None), _or(items, None))

    def _contents(self, value: Any, name: str) -> Any:
        """Select from the state or the items of an object; a module's state is named as in its state dict."""
        if value is None:
            return NOTHING
        return self._entries(value, name, MODULE_PARTS) if is_module(value) else self.part(value, name)


def _empty_like(node: Any) -> Any:
    return DefaultDict(node.default_factory) if type(node) is DefaultDict else type(node)()


def _or(part: Any, missing: Any) -> Any:
    return missing if part is NOTHING else part

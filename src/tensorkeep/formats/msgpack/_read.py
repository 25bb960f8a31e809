"""Nested values whose arrays have names. Names are as in a state dict: keys and places, joined by dots.

If two arrays would have the same name, as with keys that contain dots, the second gets `#2`. The nested value has the
keys as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tensorkeep.collector import PausedCollector
from tensorkeep.errors import IntegrityError, LimitError
from tensorkeep.formats.msgpack._chunks import unchunked
from tensorkeep.formats.msgpack._nested import rebuilt
from tensorkeep.formats.msgpack._values import Array, Extension
from tensorkeep.formats.msgpack._walk import read_value
from tensorkeep.limits import MAX_NAMES_LENGTH
from tensorkeep.transport import ByteSource

_ALONE: Final = "tensor"
"""What an array is called that is the whole value."""


class Document(msgspec.Struct, frozen=True):
    """What a file holds.

    Attributes:
        value: Nested dicts and lists of plain data, named arrays, and `Extension`.
        arrays: Name to array, in the order of the file.
        unknowns: Dotted name to what is not known to be data.
    """

    value: Any
    arrays: Mapping[str, Array]
    unknowns: Mapping[str, Extension]


def read_document(source: ByteSource) -> Document:
    """Read a file, all but the elements of arrays."""
    naming, whole = _Naming(), read_value(source)
    try:
        with PausedCollector():
            value = rebuilt(whole, naming.named)
    except RecursionError:
        raise LimitError("values are nested too deeply", hint="Open it from a shallower call stack") from None
    return Document(value, naming.arrays, naming.unknowns)


class _Naming:
    """Gives each array a unique name."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self.unknowns: dict[str, Extension] = {}
        self._n_of_name: Counter[str] = Counter()
        self._length = 0

    def named(self, leaf: Any, path: str) -> Any:
        """Return a leaf; an array gets its name."""
        self._length += len(path)
        if self._length > MAX_NAMES_LENGTH:
            raise LimitError("names are too long together", expected=f"at most {MAX_NAMES_LENGTH:,} characters")
        if type(leaf) is dict and leaf:
            leaf = unchunked(leaf, path)
        if type(leaf) is Array:
            name = self._free(path or _ALONE)
            leaf = self.arrays[name] = msgspec.structs.replace(leaf, name=name)
        elif type(leaf) is Extension:
            self.unknowns[self._free(path)] = leaf
        return leaf

    def _free(self, path: str) -> str:
        name = path
        while name in self.arrays or name in self.unknowns:
            self._n_of_name[path] += 1
            name = f"{path}#{self._n_of_name[path] + 1}"
        return name


def merged(values: Mapping[str, Any]) -> Any:
    """Merge the nested values of several files, by the name of each file; none may hold what another holds."""
    first, *others = values.items()
    whole = rebuilt(first[1], lambda leaf, _: leaf)
    for file, value in others:
        _merge(whole, value, file)
    return whole


def _merge(into: Any, value: Any, file: str) -> None:
    waiting = [(into, value)]
    while waiting:
        into, value = waiting.pop()
        if type(into) is not dict or type(value) is not dict:
            raise IntegrityError("two shards hold the same part of the state", found=f"the second one is {file}")
        for key, child in value.items():
            if key in into:
                waiting.append((into[key], child))
            else:
                into[key] = rebuilt(child, lambda leaf, _: leaf)

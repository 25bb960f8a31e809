"""The nested value that was saved, one level at a time. Pure."""

from __future__ import annotations

from argparse import Namespace
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from types import NoneType, SimpleNamespace
from typing import Any, Final

import numpy as np

from tensorkeep.arrays import EncodedObject
from tensorkeep.formats.pickles import CompositeRecord, Unknown, short_repr
from tensorkeep.state import NamedData
from tensorkeep.tensors import LazyTensor
from tensorkeep.texts import counted, shape_text, shortened
from tensorkeep.viewing._query import QueryError

_MAX_CHILDREN: Final = 500
_MAX_CHARS: Final = 10_000
_MAX_BITS: Final = 1024
"""Bits up to which integers are written in decimal."""

_SHOWN_NBYTES: Final = 64


def outline(tree: Any, node: tuple[int, ...], start: int, places: Mapping[str, int]) -> dict[str, Any]:
    """Return the children of a node, which is found by the places of its ancestors."""
    value = tree
    for place in node:
        found = next(islice(_children(value), place, None), None)
        if found is None:
            raise QueryError("there is no such node", found=_node_text(node))
        value = found[1]
    children = islice(_children(value), start, start + _MAX_CHILDREN)
    return {
        "node": _node_text(node),
        "n_children": _n_children(value),
        "start": start,
        "children": [
            {"node": _node_text((*node, place)), "label": shortened(label, _MAX_CHARS), **_members(child, places)}
            for place, (label, child) in enumerate(children, start)
        ],
    }


def _node_text(node: tuple[int, ...]) -> str:
    return ".".join(map(str, node))


def _members(value: Any, places: Mapping[str, int]) -> dict[str, Any]:
    if isinstance(value, LazyTensor):
        text = f"{value.dtype} {shape_text(value.shape)}"
        return {"kind": "tensor", "text": text, "n_children": 0, "t": places.get(value.name)}
    n_children = _n_children(value)
    return {"kind": _kind(value), "text": _text(value, n_children), "n_children": n_children, "t": None}


def _kind(value: Any) -> str:
    if isinstance(value, Unknown):
        return "unknown"
    if isinstance(value, NamedData):
        return value.kind
    return type(value).__name__


def _text(value: Any, n_children: int) -> str:
    """Describe a value on one line."""
    describe = next((describe for kinds, describe in _DESCRIBED if isinstance(value, kinds)), None)
    if describe is not None:
        return describe(value)
    return counted(n_children, "item") if isinstance(value, _CONTAINERS) else short_repr(value)


def _integer_text(value: int) -> str:
    return str(value) if value.bit_length() <= _MAX_BITS else f"an integer of {value.bit_length():,} bits"


def _bytes_text(value: bytes) -> str:
    return f"{short_repr(bytes(value[:_SHOWN_NBYTES]))}, {counted(len(value), 'byte')}"


_DESCRIBED: Final[tuple[tuple[Any, Callable[[Any], str]], ...]] = (
    (NamedData, lambda value: value.class_name),
    (Unknown, lambda value: shortened(repr(value), _MAX_CHARS)),
    (EncodedObject, lambda value: f"{value.library} {value.kind}"),
    (CompositeRecord, lambda value: value.kind),
    (np.ndarray, lambda value: f"{value.dtype} {shape_text(value.shape)}"),
    (str, lambda value: shortened(value, _MAX_CHARS)),
    (int, _integer_text),
    ((bytes, bytearray), _bytes_text),
    ((float, complex, NoneType), str),
    (np.generic, lambda value: shortened(str(value), _MAX_CHARS)),
)
"""Classes of values to what describes them; the first that fits."""

_SEQUENCES: Final = (list, tuple, set, frozenset, deque)
_NAMESPACES: Final = (Namespace, SimpleNamespace)
_CONTAINERS: Final = (Mapping, *_SEQUENCES, *_NAMESPACES)


def _n_children(value: Any) -> int:
    if isinstance(value, (Mapping, *_SEQUENCES)):
        return len(value)
    return sum(1 for _ in _children(value))


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    """Return what a value holds, each with its key or position."""
    holds = next((holds for kinds, holds in _HELD if isinstance(value, kinds)), None)
    return iter(()) if holds is None else holds(value)


def _entries(value: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    return ((key if isinstance(key, str) else short_repr(key), child) for key, child in value.items())


def _arguments(value: Unknown) -> Iterator[tuple[str, Any]]:
    parts = ((name, getattr(value, name)) for name in ("args", "state", "items"))
    return ((name, part) for name, part in parts if part is not None)


_HELD: Final[tuple[tuple[Any, Callable[[Any], Iterator[tuple[str, Any]]]], ...]] = (
    (Mapping, _entries),
    (_SEQUENCES, lambda value: ((str(place), child) for place, child in enumerate(value))),
    (NamedData, lambda value: iter(value.fields.items())),
    ((EncodedObject, CompositeRecord), lambda value: chain(value.parts.items(), value.settings.items())),
    (Unknown, _arguments),
    (_NAMESPACES, lambda value: iter(vars(value).items())),
)
"""Classes of values to what lists their contents."""

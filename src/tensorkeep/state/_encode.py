"""A tree to nodes and tensors. Exact types decide: a subclass may hold more than a reader could restore."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from datetime import datetime, time, timezone
from fractions import Fraction
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Final

import msgspec

from tensorkeep.arrays import EncodedObject
from tensorkeep.collector import PausedCollector
from tensorkeep.errors import LimitError, StateError
from tensorkeep.limits import MAX_KEY_NODES, MAX_NAMES_LENGTH, MAX_STATE_DEPTH
from tensorkeep.state._classes import class_name, fields_of, named_kind
from tensorkeep.state._keys import KeyGuard, is_safe_key, joined, key_text, words_for
from tensorkeep.state._refusals import advised, cycle, not_data, too_deep
from tensorkeep.state._scalars import SCALARS, base64_text, fraction_node, integer_node, text_node, timezone_node
from tensorkeep.state._values import Encoded, NamedData, Node, NodeMembers

Leaf = Callable[[Any], NodeMembers | None]
Compose = Callable[[Any], EncodedObject | None]

_MAX_INLINE_NBYTES: Final = 4096
"""Bytes up to which `bytes` objects are in the text; longer ones are tensors, read only when wanted."""

_RESERVED: Final = "__metadata__"
"""The member of a safetensors header that is not a tensor."""

_OPEN: Final = -1
"""The number of containers that are not complete yet."""


def encode_tree(value: Any, *, leaf: Leaf, compose: Compose) -> Encoded:
    """Encode a tree; `leaf` returns the members of a tensor's node, `compose` encodes a library's objects."""
    encoder = _Encoder(leaf, compose)
    try:
        with PausedCollector():
            tree = encoder.value(value, "")
    except RecursionError:
        raise LimitError(
            "the tree is too deep for Python's stack", hint="Save from a function that is not called so deep"
        ) from None
    return Encoded(tree, encoder.tensors)


class _Encoder:
    """One walk through a tree."""

    def __init__(self, leaf: Leaf, compose: Compose) -> None:
        self.tensors: dict[str, Any] = {}
        self._leaf = leaf
        self._compose = compose
        self.guard = KeyGuard()
        self._depth = 0
        self._numbers: dict[int, int] = {}
        self._met: list[Any] = []  # keeps numbered containers alive, so that no other object gets their id
        self._names: dict[str, str] = {}
        self._n_with_name: dict[str, int] = {}
        self._names_length = 0

    def inline(self, value: Any, path: str, role: str) -> Node:
        """Return the node of a key or the like, written out in full; `role` describes it in errors."""
        self._inline.role, self._inline.place = role, path
        return self._inline.value(value, path)

    @cached_property
    def _inline(self) -> _InlineEncoder:
        return _InlineEncoder(self._leaf, self._compose)

    def value(self, value: Any, path: str) -> Node:
        """Return the node of a value."""
        kind = type(value)
        scalar = SCALARS.get(kind)
        if scalar is not None:
            return scalar(value)
        if kind in _WHOLE:
            return _WHOLE[kind](self, value, path)
        number = self._numbers.get(id(value))
        if number == _OPEN:
            raise cycle(path)
        if number is not None:
            return ["same", number]
        encode, content = _CONTAINERS.get(kind), value
        if encode is None:
            members = self._leaf(value)
            if members is not None:
                return self.tensor(value, members, path)
            encode, content = self._encoder_of(value, path)
        number = self.begin(value, path)
        try:
            node = encode(self, content, path)
        except StateError as error:
            raise advised(error, value, content) from None
        self.end(value, number)
        return node

    def begin(self, value: Any, path: str) -> int:
        """Begin a container and return its number."""
        self.deepen(path)
        self._numbers[id(value)] = _OPEN
        self._met.append(value)
        return len(self._met) - 1

    def end(self, value: Any, number: int) -> None:
        """End a container. A tuple of scalars gets no number: it is written out wherever it is."""
        self._depth -= 1
        if type(value) is tuple and all(type(item) in SCALARS for item in value):
            del self._numbers[id(value)]
        else:
            self._numbers[id(value)] = number

    def deepen(self, path: str) -> None:
        """Count one more level of nesting."""
        if self._depth == MAX_STATE_DEPTH:
            raise too_deep(path)
        self._depth += 1

    def tensor(self, value: Any, members: NodeMembers, path: str) -> Node:
        """Give a tensor a name, and return its node."""
        name = self._free_name(path)
        self.tensors[name] = value
        return members if name == path else {"name": name, **members}

    def named(self, value: Any, kind: str, path: str) -> NamedData:
        """Return a dataclass, enum member or namedtuple as `NamedData`."""
        try:
            return NamedData(kind, class_name(type(value)), fields_of(value, kind))
        except StateError as error:
            raise error.with_fields(message=f"{words_for(path)}: {error.message}") from None

    def named_data(self, data: NamedData, path: str) -> Node:
        """Return the node of `NamedData`."""
        start: list[Any] = [data.kind, text_node(data.class_name)]
        if data.kind == "enum":
            name = data.fields["name"]
            return [
                *start,
                None if name is None else text_node(name),
                self.inline(data.fields["value"], path, "the value of "),
            ]
        return [*start, *self.pairs(data.fields.items(), path)]

    def pairs(self, items: Iterable[tuple[Any, Any]], path: str) -> list[Any]:
        """Return the nodes of keys and values, alternating."""
        nodes: list[Any] = []
        unsafe = []
        for key, item in items:
            if type(key) is str:
                node = text_node(key)
            else:
                node = self.inline(key, path, "a key of ")
                if not is_safe_key(key):
                    unsafe.append(key)
            nodes.append(node)
            scalar = SCALARS.get(type(item))
            nodes.append(self.value(item, joined(path, key_text(node))) if scalar is None else scalar(item))
        if unsafe:
            self.guard.check(unsafe, path)
        return nodes

    def items(self, items: Iterable[Any], path: str) -> list[Any]:
        """Return the nodes of items."""
        nodes: list[Any] = []
        for place, item in enumerate(items):
            scalar = SCALARS.get(type(item))
            nodes.append(self.value(item, joined(path, str(place))) if scalar is None else scalar(item))
        return nodes

    def members(self, items: Iterable[Any], path: str) -> list[Any]:
        """Return the nodes of a set's items, sorted, so that equal sets give equal bytes."""
        nodes = []
        for item in items:
            nodes.append(self.inline(item, path, "an item of "))  # noqa: PERF401 - no deeper stack
        self.guard.check([item for item in items if not is_safe_key(item)], path)
        return sorted(nodes, key=msgspec.json.encode)

    def binary(self, value: bytes | bytearray, path: str) -> Node:
        """Return the node of bytes: base64 text, or a tensor if there are many."""
        if len(value) <= _MAX_INLINE_NBYTES:
            return base64_text(value)
        import numpy as np

        array = np.frombuffer(value, np.uint8)
        return self.tensor(array, self._leaf(array) or {}, path)

    def composed(self, composed: EncodedObject, path: str) -> Node:
        """Return the node of a library's object; its part `data` gets the name of the object itself."""
        if "data" in composed.parts and path:
            self._names[joined(path, "data")] = path
        settings, parts = self.value(composed.settings, path), self.value(composed.parts, path)
        return ["composed", composed.library, composed.kind, settings, parts]

    def refusal(self, value: Any, path: str) -> StateError:
        """Return the error for a value that cannot be saved."""
        return not_data(value, path)

    def _encoder_of(self, value: Any, path: str) -> tuple[_Encode, Any]:
        composed = self._compose(value)
        if composed is not None:
            return _Encoder.composed, composed
        kind = named_kind(type(value))
        if kind is None:
            raise self.refusal(value, path)
        return _Encoder.named_data, self.named(value, kind, path)

    def _free_name(self, path: str) -> str:
        path = self._names.get(path, path)
        base = name = path if path or self._depth else "tensor"
        while name in self.tensors or name == _RESERVED:
            self._n_with_name[base] = number = self._n_with_name.get(base, 1) + 1
            name = f"{base}#{number}"
        self._names_length += len(name)
        if self._names_length > MAX_NAMES_LENGTH:
            raise LimitError(
                "the names of all tensors are too long in total", expected=f"{MAX_NAMES_LENGTH:,} characters"
            )
        return name


class _InlineEncoder(_Encoder):
    """Encodes keys and the like: in full, without tensors or references, and of bounded size."""

    _n_nodes = 0
    role, place = "", ""

    def inline(self, value: Any, path: str, role: str) -> Node:  # noqa: ARG002
        """Return the node of a part of a key."""
        return self.value(value, path)

    def begin(self, value: Any, path: str) -> int:  # noqa: ARG002
        """Begin a container without a number."""
        self._n_nodes = self._n_nodes + 1 if self._depth else 1
        if self._n_nodes > MAX_KEY_NODES:
            raise LimitError(
                f"{self.role}{words_for(self.place)} is too large", expected=f"at most {MAX_KEY_NODES:,} containers"
            )
        self.deepen(path)
        return _OPEN

    def end(self, value: Any, number: int) -> None:  # noqa: ARG002
        """End a container."""
        self._depth -= 1

    def tensor(self, value: Any, members: NodeMembers, path: str) -> Node:  # noqa: ARG002
        """Refuse a tensor: two tensors are never equal as keys."""
        raise StateError(
            f"{self.role}{words_for(self.place)} contains a tensor",
            found=class_name(type(value)),
            hint="Make it a number or a tuple: tensor.item(), tuple(tensor.tolist())",
        )

    def refusal(self, value: Any, path: str) -> StateError:  # noqa: ARG002
        """Return the error for a key, or a part of one, that cannot be saved."""
        return not_data(value, self.place, self.role)

    def binary(self, value: bytes | bytearray, path: str) -> Node:  # noqa: ARG002
        """Return bytes as base64 text, however many."""
        return base64_text(value)

    def named(self, value: Any, kind: str, path: str) -> NamedData:
        """Return an object as `NamedData`, unless it is equal only to itself."""
        if getattr(type(value), "__hash__", None) is object.__hash__:
            raise StateError(
                f"{self.role}{words_for(self.place)} is equal only to itself",
                found=class_name(type(value)),
                hint="Give its class an equality: @dataclass(frozen=True)",
            )
        return super().named(value, kind, path)


_Encode = Callable[[Any, Any, str], Node]


def _tuple(encoder: _Encoder, value: tuple[Any, ...], path: str) -> Node:
    return ["tuple", *encoder.items(value, path)]


def _dict(encoder: _Encoder, value: dict[Any, Any], path: str) -> Node:
    return ["dict", *encoder.pairs(value.items(), path)]


def _ordered_dict(encoder: _Encoder, value: OrderedDict[Any, Any], path: str) -> Node:
    attributes = encoder.value(vars(value), path) if vars(value) else None
    return ["OrderedDict", attributes, *encoder.pairs(value.items(), path)]


def _counter(encoder: _Encoder, value: Counter[Any], path: str) -> Node:
    if vars(value):
        raise StateError(
            f"{words_for(path)} is a Counter with attributes", found=", ".join(vars(value)), hint="Save a dict"
        )
    return ["Counter", *encoder.pairs(value.items(), path)]


def _default_dict(encoder: _Encoder, value: defaultdict[Any, Any], path: str) -> Node:
    return ["defaultdict", *encoder.pairs(value.items(), path)]


def _namespace(encoder: _Encoder, value: Namespace | SimpleNamespace, path: str) -> Node:
    if any(type(name) is not str for name in vars(value)):
        raise StateError(f"{words_for(path)} has an attribute whose name is not text", hint="Save a dict")
    return [type(value).__name__, *encoder.pairs(vars(value).items(), path)]


def _list(encoder: _Encoder, value: list[Any], path: str) -> Node:
    return ["list", *encoder.items(value, path)]


def _deque(encoder: _Encoder, value: deque[Any], path: str) -> Node:
    return ["deque", None if value.maxlen is None else integer_node(value.maxlen), *encoder.items(value, path)]


def _set(encoder: _Encoder, value: set[Any] | frozenset[Any], path: str) -> Node:
    return [type(value).__name__, *encoder.members(value, path)]


def _binary(encoder: _Encoder, value: bytes | bytearray, path: str) -> Node:
    return [type(value).__name__, encoder.binary(value, path)]


def _slice(encoder: _Encoder, value: slice, path: str) -> Node:
    node: list[Any] = ["slice"]
    for part in (value.start, value.stop, value.step):
        node.append(encoder.inline(part, path, "a bound of "))  # noqa: PERF401 - no deeper stack
    return node


def _fraction(_: _Encoder, value: Fraction, path: str) -> Node:
    node = fraction_node(value)
    if node is None:
        raise LimitError(
            f"{words_for(path)} is a fraction with too many digits",
            hint="Save its numerator and denominator in a tuple",
        )
    return node


def _moment(_: _Encoder, value: datetime | time, path: str) -> Node:
    zone = value.tzinfo
    if zone is not None and type(zone) is not timezone:
        raise StateError(
            f"{words_for(path)} has a time zone that is not a fixed offset",
            found=class_name(type(zone)),
            hint="Convert it with .astimezone(datetime.timezone.utc), and save the name of the zone",
        )
    zone_node = None if zone is None else timezone_node(zone)
    return [type(value).__name__, value.replace(tzinfo=None).isoformat(), value.fold, zone_node]


_CONTAINERS: Final[dict[type, _Encode]] = {
    list: _list,
    tuple: _tuple,
    set: _set,
    frozenset: _set,
    dict: _dict,
    OrderedDict: _ordered_dict,
    Counter: _counter,
    defaultdict: _default_dict,
    deque: _deque,
    Namespace: _namespace,
    SimpleNamespace: _namespace,
    bytearray: _binary,
    NamedData: _Encoder.named_data,
    EncodedObject: _Encoder.composed,
}
"""Exact type to the function that makes its node, for values that keep their identity: `x is y` survives."""

_WHOLE: Final[dict[type, _Encode]] = {
    bytes: _binary,
    slice: _slice,
    Fraction: _fraction,
    datetime: _moment,
    time: _moment,
}
"""The same, for values that are written out wherever they occur."""

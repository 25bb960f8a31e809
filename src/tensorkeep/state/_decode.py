"""Nodes to a tree. Any JSON value gives a tree or one of our errors, in linear time; nothing is imported."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Final

from tensorkeep.arrays import EncodedObject
from tensorkeep.collector import PausedCollector
from tensorkeep.errors import FormatError, LimitError
from tensorkeep.state._classes import rebuilt
from tensorkeep.state._keys import KeyGuard, is_safe_key, joined, key_text, words_for
from tensorkeep.state._nodes import FIRST_ITEM, FIRST_KEY, check_depth, members_of
from tensorkeep.state._scalars import PLAIN, SCALAR_TAGS, bytes_of, integer_of, text_of
from tensorkeep.state._values import NamedData, Node, NodeMembers

_GetTensor = Callable[[str, NodeMembers], Any]

_UNFINISHED: Final = object()


def decode_tree(
    tree: Node,
    *,
    tensor: _GetTensor,
    compose: Callable[[EncodedObject], Any],
    find_class: Callable[[str], type | None],
    content: Callable[[str], Any] | None = None,
) -> Any:
    """Decode a tree; `tensor` returns a tensor by name, `compose` a library's object, `content` a tensor's bytes."""
    content = content or (lambda name: tensor(name, {}))
    try:
        with PausedCollector():
            return _Decoder(tensor, compose, find_class, content).value(tree, "")
    except RecursionError:
        raise LimitError(
            "the tree is too deep for Python's stack", hint="Load from a function that is not called so deep"
        ) from None


class _Decoder:
    """One walk through the nodes."""

    def __init__(
        self,
        tensor: _GetTensor,
        compose: Callable[[EncodedObject], Any],
        find_class: Callable[[str], type | None],
        content: Callable[[str], Any],
    ) -> None:
        self._tensor = tensor
        self._compose = compose
        self._find_class = find_class
        self._content = content
        self.guard = KeyGuard()
        self._depth = 0
        self._made: list[Any] = []
        self._tensors: dict[str, tuple[NodeMembers, Any]] = {}
        self._contents: dict[str, bytes] = {}

    @cached_property
    def inline(self) -> _Decoder:
        """The decoder for keys, set items and the like."""
        return _InlineDecoder(self._tensor, self._compose, self._find_class, self._content)

    def value(self, node: Node, path: str) -> Any:
        """Return the value of a node."""
        if type(node) in PLAIN:
            return node
        if type(node) is dict:
            return self.tensor(node, path)
        if type(node) is not list or not node or type(node[0]) is not str:
            raise _broken(path, "an array has no tag", node)
        tag = node[0]
        if tag in _CONTAINERS:
            number = self.begin(path)
            made = _CONTAINERS[tag](self, node, path)
            self.end(number, made)
            return made
        if tag in _WHOLE:
            return _WHOLE[tag](self, node, path)
        if tag not in SCALAR_TAGS:
            raise _broken(path, "unknown kind of value", tag)
        try:
            return SCALAR_TAGS[tag](*node[1:])
        except (ValueError, TypeError, ArithmeticError) as cause:
            raise _broken(path, f"invalid {tag}", node, cause) from cause

    def begin(self, path: str) -> int:
        """Begin a container and return its number."""
        self.deepen(path)
        self._made.append(_UNFINISHED)
        return len(self._made) - 1

    def end(self, number: int, made: Any) -> None:
        """End a container."""
        self._depth -= 1
        self._made[number] = made

    def deepen(self, path: str) -> None:
        """Count one more level of nesting."""
        self._depth += 1
        check_depth(self._depth, path)

    def same(self, node: list[Any], path: str) -> Any:
        """Return the container that a node refers to."""
        number = node[1] if len(node) == 2 else None
        if type(number) is not int or not 0 <= number < len(self._made) or self._made[number] is _UNFINISHED:
            raise _broken(path, "no complete container has this number", number)
        return self._made[number]

    def tensor(self, node: NodeMembers, path: str) -> Any:
        """Return a tensor."""
        name, members = members_of(node, path)
        known = self._tensors.get(name)
        if known is None:
            known = self._tensors[name] = members, self._tensor(name, members)
        elif known[0] != members:
            raise _broken(path, "a tensor has two different nodes", name)
        return known[1]

    def binary(self, node: list[Any], path: str) -> bytes:
        """Return the bytes of a `bytes` or `bytearray`."""
        part = _only(node, path)
        if type(part) is not dict:
            try:
                return bytes_of(part)
            except ValueError as cause:
                raise _broken(path, "no bytes", part, cause) from cause
        name, _ = members_of(part, path)
        if name not in self._contents:
            self._contents[name] = _bytes_in(self._content(name), path)
        return self._contents[name]

    def pairs(self, node: list[Any], path: str) -> dict[Any, Any]:
        """Return keys and values of a dict."""
        first = FIRST_KEY[node[0]]
        if len(node) < first or (len(node) - first) % 2:
            raise _broken(path, f"a {node[0]} has a key without a value", f"{len(node)} parts")
        keys = node[first::2]
        texts = keys
        if any(type(key) is not str for key in keys):
            texts = [key_text(key) for key in keys]
            keys = self.keys(keys, path)
        made = {}
        for key, child, text in zip(keys, node[first + 1 :: 2], texts, strict=True):
            made[key] = child if type(child) in PLAIN else self.value(child, joined(path, text))
        if len(made) != len(keys):
            raise _broken(path, "a key occurs twice", f"{len(keys) - len(made)} keys too many")
        return made

    def items(self, node: list[Any], path: str) -> list[Any]:
        """Return the items of a sequence."""
        items = node[FIRST_ITEM[node[0]] :]
        for place, child in enumerate(items):
            if type(child) not in PLAIN:
                items[place] = self.value(child, joined(path, str(place)))
        return items

    def keys(self, nodes: list[Node], path: str) -> list[Any]:
        """Return keys of a dict or items of a set, checked so that adding them takes linear time."""
        keys = []
        for node in nodes:
            keys.append(node if type(node) in PLAIN else self.inline.value(node, path))  # noqa: PERF401 - no deeper stack
        try:
            self.guard.check([key for key in keys if not is_safe_key(key)], path)
        except TypeError as cause:
            raise _broken(path, "a key is not hashable", cause) from cause
        return keys

    def composed(self, node: list[Any], path: str) -> Any:
        """Return an object of an array library."""
        if len(node) != 5 or type(node[1]) is not str or type(node[2]) is not str:
            raise _broken(path, "a malformed object of an array library", node[:3])
        settings, parts = self.value(node[3], path), self.value(node[4], path)
        for members in (settings, parts):
            if type(members) is not dict or any(type(name) is not str for name in members):
                raise _broken(path, "settings and parts of an object must have names", members)
        return self._compose(EncodedObject(node[1], node[2], parts, settings))

    def named(self, data: NamedData) -> Any:
        """Return the object, if the caller allows its class, or its data."""
        cls = self._find_class(data.class_name)
        return data if cls is None else rebuilt(data, cls)


class _InlineDecoder(_Decoder):
    """Decodes keys and the like: in full, without tensors or references."""

    @property
    def inline(self) -> _Decoder:
        """This decoder itself."""
        return self

    def begin(self, path: str) -> int:
        """Begin a container without a number."""
        self.deepen(path)
        return -1

    def end(self, number: int, made: Any) -> None:  # noqa: ARG002
        """End a container."""
        self._depth -= 1

    def same(self, node: list[Any], path: str) -> Any:
        """Refuse a reference: with references, a short text could make a key that takes ages to hash."""
        raise _broken(path, "a key refers to a container", node)

    def tensor(self, node: NodeMembers, path: str) -> Any:
        """Refuse a tensor."""
        raise _broken(path, "a key contains a tensor", node)

    def binary(self, node: list[Any], path: str) -> bytes:
        """Return the bytes of an object, which must be in the text."""
        if type(_only(node, path)) is dict:
            raise _broken(path, "a key contains a tensor", node)
        return super().binary(node, path)


_Decode = Callable[[Any, list[Any], str], Any]


def _broken(path: str, message: str, found: Any, cause: Exception | None = None) -> FormatError:
    shown = repr(found)[:200] if type(found) in PLAIN or isinstance(found, Exception) else _short(found)
    return FormatError(f"{message} at {words_for(path)} of the tree", found=f"{shown} ({cause})" if cause else shown)


def _short(found: Any) -> str:
    return f"{type(found).__name__} of {len(found)}" if isinstance(found, list | dict) else str(found)[:200]


def _bytes_in(content: Any, path: str) -> bytes:
    try:
        view = memoryview(content)
    except (TypeError, ValueError, BufferError) as cause:  # such as for dtypes that buffers cannot have
        raise _broken(path, "bytes are not a tensor of uint8", type(content).__name__, cause) from cause
    if view.format != "B" or view.ndim != 1:
        raise _broken(path, "bytes must be a tensor of uint8 with one dimension", f"{view.format} {view.shape}")
    return bytes(view)


def _only(node: list[Any], path: str) -> Any:
    if len(node) != 2:
        raise _broken(path, f"{node[0]} takes one part", node)
    return node[1]


def _ordered_dict(decoder: _Decoder, node: list[Any], path: str) -> OrderedDict[Any, Any]:
    attributes = decoder.value(node[1], path) if len(node) > 1 else {}
    if attributes is not None and type(attributes) is not dict:
        raise _broken(path, "attributes of an OrderedDict must be a dict or null", attributes)
    made = OrderedDict(decoder.pairs(node, path))
    if attributes:
        _set_attributes(made, attributes, path)
    return made


def _set_attributes(value: Any, attributes: dict[Any, Any], path: str) -> None:
    if any(type(name) is not str for name in attributes):
        raise _broken(path, "names of attributes must be text", list(attributes))
    vars(value).update(attributes)


def _counter(decoder: _Decoder, node: list[Any], path: str) -> Counter[Any]:
    made: Counter[Any] = Counter()
    dict.update(made, decoder.pairs(node, path))
    return made


def _namespace(decoder: _Decoder, node: list[Any], path: str) -> Namespace | SimpleNamespace:
    made = Namespace() if node[0] == "Namespace" else SimpleNamespace()
    _set_attributes(made, decoder.pairs(node, path), path)
    return made


def _deque(decoder: _Decoder, node: list[Any], path: str) -> deque[Any]:
    try:
        maxlen = None if node[1] is None else integer_of(node[1])
        empty: deque[Any] = deque(maxlen=maxlen)
    except (IndexError, ValueError, OverflowError) as cause:
        raise _broken(path, "a deque needs a length or null", node, cause) from cause
    if maxlen is not None and len(node) - 2 > maxlen:
        raise _broken(path, "a deque is longer than its maximal length", node)
    empty.extend(decoder.items(node, path))
    return empty


def _set(decoder: _Decoder, node: list[Any], path: str) -> set[Any] | frozenset[Any]:
    items = decoder.keys(node[1:], path)
    made = set(items) if node[0] == "set" else frozenset(items)
    if len(made) != len(items):
        raise _broken(path, "an item occurs twice in a set", f"{len(items) - len(made)} items too many")
    return made


def _named(decoder: _Decoder, node: list[Any], path: str) -> Any:
    class_name, fields = _class_name(node, path), decoder.pairs(node, path)
    if any(type(name) is not str for name in fields):
        raise _broken(path, f"a {node[0]} has a field whose name is not text", list(fields))
    return decoder.named(NamedData(node[0], class_name, fields))


def _enum(decoder: _Decoder, node: list[Any], path: str) -> Any:
    class_name = _class_name(node, path)
    if len(node) != 4:
        raise _broken(path, "an enum member needs a class, a name and a value", node)
    try:
        name = None if node[2] is None else text_of(node[2])
    except ValueError as cause:
        raise _broken(path, "an enum member needs a name or null", node, cause) from cause
    return decoder.named(NamedData("enum", class_name, {"name": name, "value": decoder.inline.value(node[3], path)}))


def _class_name(node: list[Any], path: str) -> str:
    try:
        return text_of(node[1])
    except (IndexError, ValueError) as cause:
        raise _broken(path, f"a {node[0]} needs the name of a class", node, cause) from cause


def _slice(decoder: _Decoder, node: list[Any], path: str) -> slice:
    if len(node) != 4:
        raise _broken(path, "a slice needs three parts", node)
    _, start, stop, step = node
    value = decoder.inline.value
    return slice(value(start, path), value(stop, path), value(step, path))


_CONTAINERS: Final[dict[str, _Decode]] = {
    "list": _Decoder.items,
    "tuple": lambda decoder, node, path: tuple(decoder.items(node, path)),
    "set": _set,
    "frozenset": _set,
    "dict": _Decoder.pairs,
    "OrderedDict": _ordered_dict,
    "Counter": _counter,
    "defaultdict": lambda decoder, node, path: defaultdict(None, decoder.pairs(node, path)),
    "deque": _deque,
    "Namespace": _namespace,
    "SimpleNamespace": _namespace,
    "dataclass": _named,
    "enum": _enum,
    "namedtuple": _named,
    "composed": _Decoder.composed,
    "bytearray": lambda decoder, node, path: bytearray(decoder.binary(node, path)),
}
"""Tag to the function that makes the value, for containers with a number."""

_WHOLE: Final[dict[str, _Decode]] = {
    "same": lambda decoder, node, path: decoder.same(node, path),
    "bytes": lambda decoder, node, path: decoder.binary(node, path),
    "slice": _slice,
}
"""The same, for values without a number."""

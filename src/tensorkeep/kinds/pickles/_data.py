"""The nested value of a pickle, as data that a safetensors file can hold.

An object that is not known to be data becomes a dict of the tensors in it, named as in a state dict; without tensors,
it is left out.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final

import msgspec

from tensorkeep.arrays import EncodedObject, dense_order, encode_object, plain_library
from tensorkeep.collector import PausedCollector
from tensorkeep.errors import LimitError, StateError
from tensorkeep.formats.pickles import (
    DICTS,
    ArrayRecord,
    CompositeRecord,
    DefaultDict,
    Deque,
    DtypeRecord,
    Label,
    Namespace,
    StorageRecord,
    StorageView,
    TensorRecord,
    Unknown,
)
from tensorkeep.kinds.base import NestedData, TensorLeaf
from tensorkeep.kinds.pickles._flat import leaves_of
from tensorkeep.kinds.pickles._keys import PLAIN, key_text
from tensorkeep.kinds.pickles._records import array_of, dtype_of, is_tensor_like, strides_of, tensor_of
from tensorkeep.limits import MAX_GRAPH_NODES
from tensorkeep.state import Node, encode_tree
from tensorkeep.tensors import LazyTensor

_SETTINGS: Final = ("shape", "is_coalesced", "dtype", "scale", "zero_point", "axis", "_ragged_idx")
_PAIRS: Final = frozenset({"C32", "C128"})


def nested_data(value: Any, records: Mapping[str, Any], replaced: Mapping[str, LazyTensor]) -> NestedData:
    """Return the value of a pickle as data; `records` has its tensors by name.

    What is not data becomes None in lists and tuples, and is left out of dicts and sets.
    """
    names: dict[int, list[str]] = {}
    for name, record in records.items():
        names.setdefault(id(record), []).append(name)
    builder = _Builder(names)
    try:
        made = builder.value(value)
    except RecursionError:
        raise LimitError(
            "values are nested too deeply", hint="Select tensors (select=, drop=) to leave them out"
        ) from None
    whole = {} if made is _LEFT_OUT else made
    return NestedData(whole, list(names.values()), builder.n_values, tuple(builder.odd_keys), replaced)


def is_of_pairs(tensor: TensorRecord) -> bool:
    """Whether a tensor has a complex dtype that is stored as pairs of real numbers."""
    return tensor.dtype in _PAIRS


def taken_apart(value: Any) -> EncodedObject | None:
    """Encode an array library's value that is data but not a tensor; see `tensorkeep.arrays.encode_object`."""
    if type(value) is EncodedObject:
        return value
    if type(value) is Label:
        return EncodedObject("torch", value.kind, {}, {"name": str(value)})
    return encode_object(value)


def nodes_of(data: NestedData) -> Node:
    """Return nested data as nodes, as a safetensors file would have them, but with nameless tensors."""
    with PausedCollector():
        tree = encode_tree(data.value, leaf=_described_leaf, compose=taken_apart).tree
        nodes: Node = msgspec.json.decode(msgspec.json.encode(tree))
    return nodes


def _described_leaf(value: Any) -> dict[str, Any] | None:
    return {"name": "", **value.marks} if type(value) is TensorLeaf else _leaf(value)


_LEFT_OUT: Final = object()
"""Marks what is not data until its container leaves it out."""


class _Builder:
    """One walk over a value; each object is converted once."""

    def __init__(self, names: Mapping[int, Sequence[str]]) -> None:
        self._names = names
        self._made: dict[int, Any] = {}
        self._n_nodes = 0
        self.n_values = 0
        self.odd_keys: list[str] = []

    def value(self, node: Any) -> Any:
        """Return a value as data, or `_LEFT_OUT`."""
        kind = type(node)
        if kind in PLAIN:
            self.n_values += 1
            return node
        if id(node) not in self._made:
            self._made[id(node)] = self._make(node, kind)
        return self._made[id(node)]

    def _make(self, node: Any, kind: type) -> Any:
        if kind in DICTS:
            return self._dict(node, kind)
        make = _MAKERS.get(kind)
        if make is not None:
            return make(self, node)
        if isinstance(node, Unknown):
            return self._tensors_in(node)
        self.n_values += 1
        return node if _is_data(node) else _LEFT_OUT

    def _dict(self, node: dict[Any, Any], kind: type) -> dict[Any, Any]:
        made = _DICTS[kind]()
        for key, child in node.items():
            item = self.value(child)
            if item is not _LEFT_OUT:
                made[key if type(key) in PLAIN else self._key(key, node)] = item
        if kind is OrderedDict:
            self._set_attributes(made, vars(node))
        return made

    def _set_attributes(self, made: Any, attributes: dict[Any, Any]) -> None:
        n_values = self.n_values  # attributes such as `_metadata` of a state dict do not count as values
        for name, attribute in attributes.items():
            item = self.value(attribute)
            if item is not _LEFT_OUT:
                vars(made)[name] = item
        self.n_values = n_values

    def _key(self, key: Any, others: Container[Any]) -> Any:
        """Return a key as data, or unique text in its place."""
        n_values = self.n_values
        made = self.value(key)
        self.n_values = n_values
        try:
            if made is not _LEFT_OUT and _is_data({made: None}):
                return made
        except TypeError:  # as data, it is not hashable
            pass
        text = key_text(key)
        self.odd_keys.append(text)
        while text in others:
            text += "#"
        return text

    def _items(self, node: Any) -> list[Any]:
        items = []
        for child in node:  # no comprehension: it would take one more frame for each level
            item = self.value(child)
            items.append(None if item is _LEFT_OUT else item)
        return items

    def _deque(self, node: Deque) -> deque[Any]:
        return deque(self._items(node), node.maxlen)

    def _tuple(self, node: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(self._items(node))

    def _set(self, node: set[Any] | frozenset[Any]) -> Any:
        members = [member for child in node if (member := self._member(child)) is not _LEFT_OUT]
        return type(node)(members)

    def _member(self, child: Any) -> Any:
        made = self.value(child)
        if type(made) in PLAIN:
            return made
        try:
            return made if made is not _LEFT_OUT and _is_data({made}) else _LEFT_OUT
        except TypeError:
            return _LEFT_OUT

    def _tensors_in(self, node: Unknown) -> Any:
        leaves = leaves_of(node)
        self._n_nodes += leaves.n_nodes
        if self._n_nodes > MAX_GRAPH_NODES:
            raise LimitError("too many values", expected=f"at most {MAX_GRAPH_NODES:,}", found="more")
        held = {name: self.value(leaf) for name, leaf in leaves.tensors.items() if is_tensor_like(leaf)}
        return held or _LEFT_OUT

    def _tensor(self, node: TensorRecord | StorageRecord | StorageView) -> Any:
        tensor = tensor_of(node)
        names = self._names.get(id(node))
        if tensor.storage is None or names is None:
            return _LEFT_OUT
        order = dense_order(tensor.shape, tensor.strides)
        marks: dict[str, Any] = {} if order is None else {"order": order}
        if is_of_pairs(tensor):
            marks = {} if order is None else {"order": [*order, len(order)]}
            settings = {"requires_grad": True} if tensor.requires_grad else {}
            part = TensorLeaf(names, "torch", marks)
            return EncodedObject("torch", "complex", {"data": part}, settings)
        if tensor.requires_grad:
            marks["grad"] = True
        return TensorLeaf(names, "torch", marks)

    def _composite(self, node: CompositeRecord) -> Any:
        parts = {name: self.value(part) for name, part in node.parts.items()}
        if any(part is _LEFT_OUT for part in parts.values()):
            return _LEFT_OUT
        n_values = self.n_values
        found = {name: self.value(setting) for name, setting in node.settings.items() if name in _SETTINGS}
        self.n_values = n_values
        settings = {name: _text_of(setting) for name, setting in found.items() if setting is not _LEFT_OUT}
        if node.settings.get("requires_grad") is True:
            settings["requires_grad"] = True
        return EncodedObject("torch", node.kind, parts, settings)

    def _array(self, node: ArrayRecord) -> Any:
        if type(node.data) is list:
            return self._tensors_in(Unknown("numpy", "ndarray", (node.shape,), items=node.data))
        names = self._names.get(id(node))
        if names is None:
            self.n_values += 1
            array = array_of(node)
            if plain_library(array):  # a safetensors file would pack its elements
                return EncodedObject(
                    "numpy", "array", {"data": array[..., None].view("u1")}, {"dtype": node.dtype.text}
                )
            return array if _is_data(array) else _LEFT_OUT
        order = dense_order(node.shape, strides_of(node))
        leaf = TensorLeaf(names, "numpy", {} if order is None else {"order": order})
        if dtype_of(node).isnative:
            return leaf
        return EncodedObject("numpy", "array", {"data": leaf}, {"dtype": node.dtype.text})

    def _dtype(self, node: DtypeRecord) -> Any:
        self.n_values += 1
        dtype = dtype_of(node)
        return dtype if _is_data(dtype) else _LEFT_OUT


def _text_of(setting: Any) -> Any:
    return str(setting) if type(setting) is Label else setting


def _is_data(value: Any) -> bool:
    """Whether a value without tensors can be stored in a safetensors file."""
    try:
        encode_tree(value, leaf=_leaf, compose=taken_apart)
    except (StateError, LimitError):
        return False
    return True


def _leaf(value: Any) -> dict[str, Any] | None:
    return {} if plain_library(value) else None


_MAKERS: Final[dict[type, Callable[[_Builder, Any], Any]]] = {
    list: _Builder._items,
    Deque: _Builder._deque,
    tuple: _Builder._tuple,
    set: _Builder._set,
    frozenset: _Builder._set,
    TensorRecord: _Builder._tensor,
    StorageRecord: _Builder._tensor,
    StorageView: _Builder._tensor,
    CompositeRecord: _Builder._composite,
    ArrayRecord: _Builder._array,
    DtypeRecord: _Builder._dtype,
}

_DICTS: Final[dict[type, Callable[[], dict[Any, Any]]]] = {
    dict: dict,
    Namespace: dict,
    Counter: Counter,
    DefaultDict: defaultdict,
    OrderedDict: OrderedDict,
}

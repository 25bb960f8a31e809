"""Walks the graphs of a model, and graphs within them, and names every tensor. Pure.

A tensor in the main graph keeps its name, and a constant that a node computes has the name of the node's output. What
is nested has a path before its name: `<node>.<attribute>.` for a graph in an attribute, `<domain>.<function>.` for a
function, where a node is called by its first output.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tensorkeep.errors import FormatError, LimitError
from tensorkeep.formats._contents import TensorPlace
from tensorkeep.formats._strings import StringArray
from tensorkeep.formats.onnx._constants import read_constant
from tensorkeep.formats.onnx._decoded import NarrowIntegers
from tensorkeep.formats.onnx._model import ExternalTensor, Operator, UnreadTensor
from tensorkeep.formats.onnx._plain_tensor import read_plain_run
from tensorkeep.formats.onnx._tensor import Placed, checked_shape, read_tensor
from tensorkeep.formats.protobuf import Field, Message, MessageReader
from tensorkeep.limits import MAX_LISTED_NDIM, MAX_NAME_LENGTH, MAX_NAMES_LENGTH, MAX_PROTOBUF_DEPTH
from tensorkeep.transport import ByteRange

_NODE: Final = 1
_INITIALIZER: Final = 5
_SPARSE_INITIALIZER: Final = 15

_OUTPUT: Final = 2
_NODE_NAME: Final = 3
_OP_TYPE: Final = 4
_ATTRIBUTE: Final = 5
_DOMAIN: Final = 7
_NODE_KEPT: Final = frozenset((_OUTPUT, _NODE_NAME, _OP_TYPE, _ATTRIBUTE, _DOMAIN))

_ATTRIBUTE_NAME: Final = 1
_TENSOR: Final = 5
_GRAPH: Final = 6
_TENSORS: Final = 10
_GRAPHS: Final = 11
_SPARSE: Final = 22
_SPARSES: Final = 23

_VALUES: Final = 1
_INDICES: Final = 2
_SPARSE_DIMS: Final = 3

_MAX_TEXT_NBYTES: Final = 4 * MAX_NAME_LENGTH


class Place(msgspec.Struct, frozen=True):
    """Where a message is in the nesting of a model.

    Attributes:
        span: Its bytes.
        path: What stands before the names of its tensors.
        depth: How many graphs it is in.
    """

    span: ByteRange
    path: str = ""
    depth: int = 0

    def inner(self, span: ByteRange, name: str) -> Place:
        """Return the place of a graph in it."""
        if self.depth == MAX_PROTOBUF_DEPTH:
            raise LimitError(
                "graphs are nested too deeply", expected=f"at most {MAX_PROTOBUF_DEPTH} within each other"
            )
        return Place(span, f"{self.path}{name}.", self.depth + 1)


class Graphs:
    """Everything found in the graphs of one model, each kind of thing by its name.

    Graphs within graphs wait until the outer one is done, so that walking them takes no recursion.
    """

    def __init__(self, reader: MessageReader) -> None:
        self.tensors: dict[str, TensorPlace] = {}
        self.external: dict[str, ExternalTensor] = {}
        self.strings: dict[str, StringArray] = {}
        self.unknowns: dict[str, UnreadTensor] = {}
        self.sparse: dict[str, tuple[int, ...]] = {}
        self.widened: dict[str, str] = {}
        self.operators: dict[Operator, str] = {}
        self._reader = reader
        self._names: set[str] = set()
        self._n_left = MAX_NAMES_LENGTH
        self._waiting: list[Place] = []

    def walk(self, graph: Place) -> None:
        """Walk a graph, and the graphs in it."""
        self._waiting.append(graph)
        self.walk_waiting()

    def walk_waiting(self) -> None:
        """Walk the graphs that were found in nodes."""
        while self._waiting:
            place = self._waiting.pop()
            at, stop = place.span.start, place.span.stop
            while at < stop:
                field = self._reader.field_at(at, stop)
                at = field.stop
                if field.number == _INITIALIZER:
                    name, placed = read_tensor(self._reader, field.span)
                    self._add(place.path + name, placed)
                    run, external, at = read_plain_run(self._reader, at, stop)
                    self._add_run(place.path, run)
                    for name, tensor in external.items():
                        self._add(place.path + name, tensor)
                elif field.number == _NODE:
                    self.walk_node(place, field.span)
                elif field.number == _SPARSE_INITIALIZER:
                    self._add_sparse(place.path, None, field.span)

    def walk_node(self, place: Place, span: ByteRange) -> None:
        """Look for tensors and graphs in the attributes of a node."""
        node = Message(self._reader, span, _NODE_KEPT)
        operator = Operator(
            node.text(_DOMAIN, max_nbytes=_MAX_TEXT_NBYTES), node.text(_OP_TYPE, max_nbytes=_MAX_TEXT_NBYTES)
        )
        is_constant = operator.name == "Constant"
        attributes = node.all(_ATTRIBUTE)
        if operator in self.operators and not attributes:
            return
        label = self._label(node)
        if operator not in self.operators:
            self._spend(len(place.path + label))
            self.operators[operator] = place.path + label
        for field in attributes:
            self.walk_attribute(place, label, field.span, is_constant=is_constant)

    def _label(self, node: Message) -> str:
        outputs = node.all(_OUTPUT)
        if outputs:
            return self._reader.read_text(outputs[0].span, max_nbytes=_MAX_TEXT_NBYTES)
        return node.text(_NODE_NAME, max_nbytes=_MAX_TEXT_NBYTES) or "node"

    def walk_attribute(self, place: Place, label: str, span: ByteRange, *, is_constant: bool) -> None:
        """Find the tensors of an attribute, and let graphs in it wait."""
        attribute = Message(self._reader, span)
        name = attribute.text(_ATTRIBUTE_NAME, max_nbytes=_MAX_TEXT_NBYTES)
        own_name = place.path + (label if is_constant else f"{label}.{name}")
        if is_constant and (constant := read_constant(name, attribute)) is not None:
            self._add(own_name, constant)
        for inner_name, field in _numbered(own_name, attribute, _TENSOR, _TENSORS):
            self._add(inner_name, read_tensor(self._reader, field.span)[1])
        for inner_name, field in _numbered(own_name, attribute, _SPARSE, _SPARSES):
            self._add_sparse("", inner_name, field.span)
        for inner_name, field in _numbered(f"{label}.{name}", attribute, _GRAPH, _GRAPHS):
            self._waiting.append(place.inner(field.span, inner_name))
            self._spend(len(self._waiting[-1].path))

    def _add_sparse(self, path: str, name: str | None, span: ByteRange) -> None:
        """Add the parts of a sparse tensor, which has the name of its values if it has no other."""
        message = Message(self._reader, span)
        parts: list[Placed] = []
        for number in (_VALUES, _INDICES):
            field = message.one(number)
            if field is None:
                raise FormatError("a sparse tensor has no values or no indices", found=f"byte {span.start:,}")
            own_name, part = read_tensor(self._reader, field.span)
            name = path + own_name if name is None else name
            parts.append(part)
        for part_name, part in zip(("values", "indices"), parts, strict=True):
            self._add(f"{name}.{part_name}", part)
        self.sparse[str(name)] = checked_shape(message.int64s(_SPARSE_DIMS, max_nbytes=10 * MAX_LISTED_NDIM))

    def _add(self, name: str, placed: Placed) -> None:
        if name in self._names:
            raise FormatError(f"two tensors are called `{name:.200}`", tensor=name)
        self._names.add(name)
        self._spend(len(name))
        if isinstance(placed, TensorPlace):
            self.tensors[name] = placed
            if isinstance(placed.source, NarrowIntegers):
                self.widened[name] = placed.source.data_type
        elif isinstance(placed, ExternalTensor):
            self.external[name] = placed
            if placed.data_type.is_widened:
                self.widened[name] = placed.data_type.name
        elif isinstance(placed, StringArray):
            self.strings[name] = placed
        else:
            self.unknowns[name] = placed

    def _add_run(self, path: str, run: dict[str, TensorPlace]) -> None:
        """Add tensors whose elements are as memory has them."""
        named = {path + name: place for name, place in run.items()} if path else run
        for name in self._names & named.keys():
            self._add(name, named[name])
        self._names.update(named)
        self._spend(sum(map(len, named)))
        self.tensors.update(named)

    def _spend(self, length: int) -> None:
        """Count the characters of names, since paths of nested graphs repeat those around them."""
        self._n_left -= length
        if self._n_left < 0:
            raise LimitError("the names of tensors are too long together", expected=f"at most {MAX_NAMES_LENGTH:,}")


def _numbered(name: str, attribute: Message, one: int, many: int) -> list[tuple[str, Field]]:
    """Return the only value of an attribute by its name, and the values of a list by their numbers too."""
    field = attribute.one(one)
    found = [] if field is None else [(name, field)]
    return found + [(f"{name}.{number}", field) for number, field in enumerate(attribute.all(many))]

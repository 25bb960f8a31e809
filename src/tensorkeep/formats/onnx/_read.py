"""A model as a whole: its graphs and functions, and what it says of itself. No element is read. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from tensorkeep.errors import FormatError
from tensorkeep.formats.onnx._graphs import Graphs, Place
from tensorkeep.formats.onnx._model import OnnxModel, Operator
from tensorkeep.formats.protobuf import Message, MessageReader
from tensorkeep.limits import MAX_HEADER_NBYTES, MAX_NAME_LENGTH
from tensorkeep.transport import ByteRange, ByteSource

_IR_VERSION: Final = 1
_MODEL_VERSION: Final = 5
_GRAPH: Final = 7
_OPSETS: Final = 8
_METADATA: Final = 14
_TRAINING: Final = 20
_FUNCTIONS: Final = 25
_TEXTS: Final = {2: "producer_name", 3: "producer_version", 4: "domain", 6: "doc_string"}

_TRAINING_GRAPHS: Final = {1: "initialization", 2: "algorithm"}

_FUNCTION_NAME: Final = 1
_FUNCTION_NODE: Final = 7
_FUNCTION_DOMAIN: Final = 10
_FUNCTION_DEFAULT: Final = 11
_FUNCTION_OVERLOAD: Final = 13

_MAX_TEXT_NBYTES: Final = 4 * MAX_NAME_LENGTH
_OWN_KEYS: Final = "onnx."
"""Begins the metadata keys of what ONNX itself says; a model's `metadata_props` keep their keys."""


def parse_onnx(source: ByteSource) -> OnnxModel:
    """Find all tensors of a model, without reading their elements."""
    reader = MessageReader(source)
    model = Message(reader)
    graphs = Graphs(reader)
    graph = model.one(_GRAPH)
    if graph is None:
        raise FormatError("not an ONNX model: it has no graph")
    graphs.walk(Place(graph.span))
    own = frozenset(_walk_function(reader, field.span, graphs) for field in model.all(_FUNCTIONS))
    for number, field in enumerate(model.all(_TRAINING)):
        training = Message(reader, field.span)
        for graph_number, name in _TRAINING_GRAPHS.items():
            inner = training.one(graph_number)
            if inner is not None:
                graphs.walk(Place(inner.span, f"training_info.{number}.{name}."))
    return OnnxModel(
        graphs.tensors,
        _metadata(model, graphs),
        unknowns=graphs.unknowns,
        strings=graphs.strings,
        external=graphs.external,
        operators=graphs.operators,
        own_operators=own,
    )


def _walk_function(reader: MessageReader, span: ByteRange, graphs: Graphs) -> Operator:
    """Look for tensors in the nodes and default attributes of a function, and return the operator that it defines."""
    function = Message(reader, span)
    name, domain, overload = (
        function.text(number, max_nbytes=_MAX_TEXT_NBYTES)
        for number in (_FUNCTION_NAME, _FUNCTION_DOMAIN, _FUNCTION_OVERLOAD)
    )
    place = Place(span, "".join(f"{part}." for part in (domain, name, overload) if part))
    for field in function.all(_FUNCTION_NODE):
        graphs.walk_node(place, field.span)
    for field in function.all(_FUNCTION_DEFAULT):
        graphs.walk_attribute(place, "default", field.span, is_constant=False)
    graphs.walk_waiting()
    return Operator(domain, name)


def _metadata(model: Message, graphs: Graphs) -> dict[str, str]:
    found = {_OWN_KEYS + key: model.text(number, max_nbytes=MAX_HEADER_NBYTES) for number, key in _TEXTS.items()}
    found = {key: text for key, text in found.items() if text}
    for number, key in ((_IR_VERSION, "ir_version"), (_MODEL_VERSION, "model_version")):
        if number in model:
            found[_OWN_KEYS + key] = str(model.int64(number))
    opsets = [Message(model.reader, field.span) for field in model.all(_OPSETS)]
    if opsets:
        versions = {opset.text(1, max_nbytes=_MAX_TEXT_NBYTES): opset.int64(2) for opset in opsets}
        found[_OWN_KEYS + "opset_import"] = _json(versions)
    if graphs.widened:
        found[_OWN_KEYS + "widened"] = _json(graphs.widened)
    if graphs.sparse:
        found[_OWN_KEYS + "sparse"] = _json(graphs.sparse)
    for field in model.all(_METADATA):
        entry = Message(model.reader, field.span)
        key = entry.text(1, max_nbytes=_MAX_TEXT_NBYTES)
        if key in found:
            raise FormatError("the model has a metadata key twice", found=key)
        found[key] = entry.text(2, max_nbytes=MAX_HEADER_NBYTES)
    return found


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()

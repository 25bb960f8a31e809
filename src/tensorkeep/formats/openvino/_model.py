"""A model in XML: its constants with their places in the other file, and its operators."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from tensorkeep.errors import FormatError, LimitError, UnsupportedError
from tensorkeep.formats.openvino._xml import Attributes, elements
from tensorkeep.limits import MAX_HEADER_NBYTES, MAX_NAMES_LENGTH
from tensorkeep.transport import ByteRange, ByteSource

_begins = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*+(?:<\?xml[^<>?]*+\?>\s*+)?(?:<!--(?:[^-]|-(?!-))*+-->\s*+)*+<net[\s>]"
).match
_OLDEST: Final = 10
"""Versions before that keep weights in other ways; no current OpenVINO reads them."""

_ROOT, _LAYER, _DATA, _NOTES = "net", "layer", "data", "rt_info"
_CONSTANT: Final = "Const"


class Constant(msgspec.Struct, frozen=True):
    """A constant of the graph.

    Attributes:
        element_type: OpenVINO's name of the type, such as `f32`.
        shape: Its shape as text, such as `3, 4`.
        offset: First byte in the other file, as text.
        nbytes: Bytes there, as text.
    """

    element_type: str
    shape: str
    offset: str
    nbytes: str


class OpenVinoModel(msgspec.Struct, frozen=True):
    """A model.

    Attributes:
        constants: Name to constant, in the order of the file.
        operators: Set of operators (`opset1`) to the types of layers from it.
        metadata: Name and version of the model, and what was noted at run time.
    """

    constants: Mapping[str, Constant]
    operators: Mapping[str, Mapping[str, str]]
    metadata: Mapping[str, str]


def begins_like_openvino(head: bytes) -> bool:
    """Say whether a file may be a model, by its first bytes."""
    return _begins(head) is not None


def parse_openvino(source: ByteSource) -> OpenVinoModel:
    """Read a model."""
    if source.nbytes > MAX_HEADER_NBYTES:
        found = f"{source.nbytes:,}"
        raise LimitError("the model is too large", expected=f"at most {MAX_HEADER_NBYTES:,} bytes", found=found)
    data = bytes(source.read(ByteRange(0, source.nbytes)))
    if not begins_like_openvino(data):
        raise FormatError("not a model of OpenVINO", expected="XML with the root <net>", found=f"{data[:40]!r}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError("the model is not UTF-8", found=str(error)) from None
    reader = _Reader()
    for name, attributes in elements(text):
        if attributes is None:
            reader.end(name)
        else:
            reader.begin(name, attributes)
    return OpenVinoModel(reader.named(), reader.operators, reader.metadata)


class _Layer(msgspec.Struct):
    """A layer that has begun."""

    name: str
    id: str
    type: str
    prefix: str


class _Reader:
    """Gathers the constants, with the names of the layers in whose graphs they are."""

    def __init__(self) -> None:
        self.operators: dict[str, dict[str, str]] = {}
        self.metadata: dict[str, str] = {}
        self._path: list[str] = []
        self._layers: list[_Layer] = []
        self._found: list[tuple[str, str, Constant]] = []
        self._notes: list[str] = []
        self._length = 0

    def begin(self, name: str, attributes: Attributes) -> None:
        parent = self._path[-1] if self._path else ""
        if not self._path:
            self._begin_model(attributes)
        elif name == _LAYER and parent == "layers":
            self._begin_layer(attributes)
        elif name == _DATA and self._path[-2:] == ["layers", _LAYER] and self._layers[-1].type == _CONSTANT:
            self._add(attributes)
        elif len(self._path) > 1 and self._path[1] == _NOTES:
            self._note(name, attributes)
        self._path.append(name)

    def end(self, name: str) -> None:
        self._path.pop()
        if name == _LAYER and self._path[-1:] == ["layers"]:
            self._layers.pop()

    def named(self) -> dict[str, Constant]:
        """Return the constants by name; names that occur more than once are followed by the number of the layer."""
        n_each = Counter(name for name, _, _ in self._found)
        constants: dict[str, Constant] = {}
        for name, number, constant in self._found:
            full = name if n_each[name] == 1 else f"{name}#{number}"
            if full in constants:
                raise FormatError(f"two constants are called `{full:.200}`", tensor=full)
            constants[full] = constant
        return constants

    def _begin_model(self, attributes: Attributes) -> None:
        version = attributes.get("version", "")
        if not re.fullmatch(r"\d{1,4}", version) or int(version) < _OLDEST:
            raise UnsupportedError(
                "a version of OpenVINO's models that is not read",
                expected=f"{_OLDEST} or newer",
                found=repr(version)[:50],
            )
        self.metadata["openvino.name"] = attributes.get("name", "")
        self.metadata["openvino.version"] = version

    def _begin_layer(self, attributes: Attributes) -> None:
        outer = self._layers[-1] if self._layers else None
        prefix = f"{outer.prefix}{outer.name}.{self._path[-2]}." if outer else ""
        layer = _Layer(attributes.get("name", ""), attributes.get("id", ""), attributes.get("type", ""), prefix)
        self._layers.append(layer)
        opset = attributes.get("version", "")
        self.operators.setdefault(opset, {}).setdefault(layer.type, prefix + layer.name)

    def _add(self, attributes: Attributes) -> None:
        layer = self._layers[-1]
        name = layer.prefix + layer.name
        self._length += len(name)
        if self._length > MAX_NAMES_LENGTH:
            raise LimitError("the names of tensors are too long", expected=f"at most {MAX_NAMES_LENGTH:,} characters")
        values = [attributes.get(key, "") for key in ("element_type", "shape", "offset", "size")]
        self._found.append((name, layer.id, Constant(*values)))

    def _note(self, name: str, attributes: Attributes) -> None:
        if "value" in attributes:
            path = [*self._path[2:], attributes.get("name", name) if name == "info" else name]
            self.metadata[f"openvino.{'.'.join(path)}"] = attributes["value"]

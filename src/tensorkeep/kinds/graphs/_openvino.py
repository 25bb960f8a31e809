"""OpenVINO's models as a kind: XML, and the elements of constants in `.bin` beside it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

import msgspec

from tensorkeep.errors import FormatError
from tensorkeep.formats import FileContents, TensorPlace
from tensorkeep.formats.onnx import NarrowIntegers
from tensorkeep.formats.openvino import begins_like_openvino, parse_openvino, place_constant
from tensorkeep.kinds.base import Kind, Place, SharedBytesFile, file_kind
from tensorkeep.kinds.graphs._beside import FilesBeside
from tensorkeep.transport import ByteSource, split

_SUFFIX, _WEIGHTS = ".xml", ".bin"
_WIDENED: Final = "openvino.widened"
"""Key of the original types of integers that are widened to a byte each, in JSON by name."""


def _find(place: Place) -> Place | None:
    return place if not place.is_directory and begins_like_openvino(place.head) else None


def _parse_files(place: Place, files: ExitStack) -> FileContents:
    model = parse_openvino(place.source)
    if not model.constants:
        return FileContents({}, model.metadata)
    beside = FilesBeside(place, files)
    own = split(place.path)[1] if place.path is not None else f"model{_SUFFIX}"
    stem = own[: -len(_SUFFIX)] if own.lower().endswith(_SUFFIX) else own
    weights = beside.open(stem + _WEIGHTS)
    tensors: dict[str, TensorPlace] = {}
    unknowns: dict[str, str] = {}
    widened: dict[str, str] = {}
    for name, constant in model.constants.items():
        found = place_constant(name, constant, weights)
        if isinstance(found, str):
            unknowns[name] = found
            continue
        tensors[name] = found
        if isinstance(found.source, NarrowIntegers):
            widened[name] = constant.element_type
    metadata = dict(model.metadata)
    if widened:
        metadata[_WIDENED] = msgspec.json.encode(widened).decode()
    return FileContents(tensors, metadata, unknowns=unknowns, files=beside.opened)


def _refuse_alone(source: ByteSource) -> FileContents:
    raise FormatError("a model of OpenVINO cannot be read without the file beside it", path=source.name)


OPENVINO: Final[Kind[Place]] = msgspec.structs.replace(
    file_kind(
        "a model of OpenVINO", _refuse_alone, suffixes=(_SUFFIX,), parse_files=_parse_files, opens=SharedBytesFile
    ),
    find=_find,
)

"""ONNX models as a kind, with the files beside them that hold the elements of large tensors."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

import msgspec

from tensorkeep.digests import SHA1
from tensorkeep.errors import FormatError
from tensorkeep.formats import Checksum, FileContents, TensorPlace
from tensorkeep.formats.onnx import MAGICS, ExternalTensor, begins_like_onnx, is_onnx, parse_onnx, place_raw
from tensorkeep.kinds.base import Kind, Place, SharedBytesFile, file_kind
from tensorkeep.kinds.graphs._beside import FilesBeside
from tensorkeep.transport import ByteRange, ByteSource

_SUFFIX: Final = ".onnx"


def _find(place: Place) -> Place | None:
    """Take a file for a model if it has the name and begins like one, or can be nothing else."""
    if place.is_directory:
        return None
    if place.is_named(_SUFFIX):
        return place if begins_like_onnx(place.head) else None
    return place if place.head.startswith(MAGICS) and is_onnx(place.source) else None


def _parse_files(place: Place, files: ExitStack) -> FileContents:
    """Read a model, and find the tensors that are in other files."""
    source, beside = place.source, FilesBeside(place, files)
    model = parse_onnx(source)
    if not model.external:
        return model
    sums: dict[tuple[str, bytes], Checksum] = {}
    tensors = dict(model.tensors)
    for name, tensor in model.external.items():
        location = tensor.location.removeprefix("./")
        other = beside.open(location)
        checksum = None
        if tensor.checksum is not None:
            whole = Checksum(SHA1, tensor.checksum, ByteRange(0, other.nbytes), other)
            checksum = sums.setdefault((location, tensor.checksum), whole)
        tensors[name] = _placed(name, tensor, source, other, checksum)
    return msgspec.structs.replace(model, tensors=tensors, files=beside.opened)


def _placed(
    name: str, tensor: ExternalTensor, source: ByteSource, other: ByteSource, checksum: Checksum | None
) -> TensorPlace:
    span = ByteRange(tensor.offset, tensor.offset + tensor.nbytes)
    if span.stop > other.nbytes:
        raise FormatError(
            f"the file ends before tensor `{name}` does",
            path=other.name,
            tensor=name,
            expected=f"at least {span.stop:,} bytes",
            found=f"{other.nbytes:,}",
            hint="If it was cut off, get it again",
        )
    return place_raw(span, tensor.data_type, tensor.shape, own=source, other=other, checksum=checksum)


ONNX: Final[Kind[Place]] = msgspec.structs.replace(
    file_kind("an ONNX model", parse_onnx, suffixes=(_SUFFIX,), parse_files=_parse_files, opens=SharedBytesFile),
    find=_find,
)

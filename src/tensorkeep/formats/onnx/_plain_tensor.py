"""Tensors as almost every program writes them, found in one look: dims, data type, name and elements, in this order.

A model has thousands of them, and walking each field by field takes five times as long. Whatever differs in any way
is left to the walk, which also says what is wrong.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod
from typing import Final

import msgspec

from tensorkeep.formats._contents import TensorPlace
from tensorkeep.formats.onnx._dtypes import DATA_TYPES, DataType
from tensorkeep.formats.onnx._model import ExternalTensor
from tensorkeep.formats.protobuf import MessageReader, emit_varint, parse_varint
from tensorkeep.limits import MAX_I64
from tensorkeep.transport import ByteRange

_MAX_HEAD_NBYTES: Final = 512
"""Bytes of a tensor before its elements: a name of 300 characters and 20 dimensions fit."""

_HEAD: Final = (
    rb"((?:\x08[\x80-\xff]{0,8}+[\x00-\x7f]){0,64}+"  # dims
    rb"\x10[\x00-\x7f])"  # data type
    rb"\x42([\x00-\x7f]|[\x80-\xff][\x01-\x7f])"  # length of the name
)
_head = re.compile(_HEAD).match
_initializer = re.compile(rb"\x2a([\x80-\xff]{0,8}+[\x00-\x7f])" + _HEAD).match  # in a graph, after its length
_RAW: Final = b"\x4a"
_MARGIN: Final = 12
"""Bytes after a name up to the elements."""

_file = re.compile(rb"\x6a([\x0d-\x7f])\x0a\x08location\x12([\x01-\x7f])").match
_FILE_NBYTES: Final = 12
"""Bytes of this entry beside the path."""

_place_in_file = re.compile(
    rb"\x6a([\x0b-\x7f])\x0a\x06offset\x12([\x01-\x12])([0-9]{1,18})"
    rb"\x6a([\x0b-\x7f])\x0a\x06length\x12([\x01-\x12])([0-9]{1,18})"
    rb"\x70\x01"  # the elements are in another file
).fullmatch
_NUMBER_NBYTES: Final = 10
"""Bytes of each of these entries beside its digits."""


def read_plain(reader: MessageReader, span: ByteRange) -> tuple[str, TensorPlace | ExternalTensor] | None:
    """Return the name of a tensor and where its elements are; None if it is not written in the usual way."""
    window = reader.window(span.start, min(len(span), _MAX_HEAD_NBYTES))
    if window is None:
        return None
    data, start = window
    found = _head(data, start)
    if found is None:
        return None
    head, length = found.groups()
    plain = _described(head)
    name_stop = found.end() + _number(length)
    if plain is None or name_stop + _MARGIN > start + min(len(span), _MAX_HEAD_NBYTES):
        return None
    elements_start, stop = name_stop + len(plain.raw), start + len(span)
    try:
        name = data[found.end() : name_stop].decode()
        if data.startswith(plain.raw, name_stop) and elements_start + plain.nbytes == stop:
            return name, TensorPlace(plain.data_type.dtype, plain.shape, span.start + elements_start - start)
        external = _in_file(data, name_stop, stop, plain)
    except UnicodeDecodeError:
        return None
    return None if external is None else (name, external)


def _in_file(data: bytes, start: int, stop: int, plain: _Plain) -> ExternalTensor | None:
    """Return a tensor whose elements are in another file: path, offset and length, in this order."""
    file = _file(data, start)
    if file is None or stop > len(data) or file[1][0] != _FILE_NBYTES + file[2][0]:
        return None
    path_stop = file.end() + file[2][0]
    place = _place_in_file(data, path_stop, stop)
    if place is None:
        return None
    for entry, length, digits in (place.group(1, 2, 3), place.group(4, 5, 6)):
        if not len(digits) == length[0] == entry[0] - _NUMBER_NBYTES:
            return None
    if int(place[6]) != plain.nbytes:
        return None
    path = data[file.end() : path_stop].decode()
    return ExternalTensor(path, int(place[3]), plain.nbytes, None, plain.data_type, plain.shape)


def read_plain_run(
    reader: MessageReader, at: int, stop: int
) -> tuple[dict[str, TensorPlace], dict[str, ExternalTensor], int]:
    """Return tensors of a graph that follow each other from a byte on, and where they end.

    Their elements are in the model or in other files. The last is the last one whose bytes were read ahead.

    Listing a model takes the time of this loop, so it calls nothing that it need not.
    """
    found: dict[str, TensorPlace] = {}
    external: dict[str, ExternalTensor] = {}
    window = reader.window(at, _MAX_HEAD_NBYTES)
    if window is None:
        return found, external, at
    data, first = window
    index, last, most = first, len(data) - _MAX_HEAD_NBYTES, first + stop - at
    while index <= last:
        match = _initializer(data, index)
        if match is None:
            break
        nbytes, head, length = match.groups()
        plain = _described(head)
        name_start, next_index = match.end(), match.end(1) + _number(nbytes)
        name_stop = name_start + _number(length)
        if plain is None or next_index > most:
            break
        try:
            name = data[name_start:name_stop].decode()
            if name in found or name in external:
                break
            if data.startswith(plain.raw, name_stop):
                elements_start = name_stop + len(plain.raw)
                if elements_start + plain.nbytes != next_index:
                    break
                found[name] = TensorPlace(plain.data_type.dtype, plain.shape, at + elements_start - first)
            else:
                tensor = _in_file(data, name_stop, next_index, plain)
                if tensor is None:
                    break
                external[name] = tensor
        except UnicodeDecodeError:
            break
        index = next_index
    reader.count(len(found) + len(external))
    return found, external, at + index - first


class _Plain(msgspec.Struct, frozen=True):
    """What the head of a tensor says.

    Attributes:
        data_type: What its elements are.
        shape: Elements along each dimension.
        nbytes: Bytes of all elements.
        raw: What is before the elements, if they are in the model.
    """

    data_type: DataType
    shape: tuple[int, ...]
    nbytes: int
    raw: bytes


@lru_cache(maxsize=4096)
def _described(head: bytes) -> _Plain | None:
    """Return what dims and data type say; None if the elements are not whole bytes of a known one."""
    data_type = DATA_TYPES.get(head[-1])
    shape: list[int] = []
    index = 0
    while index < len(head) - 2:
        extent, index = parse_varint(head, index + 1)
        shape.append(extent)
    n_elements = prod(shape)
    is_plain = data_type is not None and data_type.bits >= 8 and prod(extent or 1 for extent in shape) <= MAX_I64
    if data_type is None or not is_plain:
        return None
    nbytes = data_type.nbytes(n_elements)
    return _Plain(data_type, tuple(shape), nbytes, _RAW + emit_varint(nbytes))


@lru_cache(maxsize=4096)
def _number(data: bytes) -> int:
    return parse_varint(data, 0)[0]

"""Tensors as almost every program writes them, found in one look: dims, data type, name and raw bytes, in this order.

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
from tensorkeep.formats.onnx._dtypes import DATA_TYPES
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


def read_plain(reader: MessageReader, span: ByteRange) -> tuple[str, TensorPlace] | None:
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
    elements_start = name_stop + len(plain.raw)
    if not data.startswith(plain.raw, name_stop) or elements_start + plain.nbytes != start + len(span):
        return None
    try:
        name = data[found.end() : name_stop].decode()
    except UnicodeDecodeError:
        return None
    return name, TensorPlace(plain.dtype, plain.shape, span.start + elements_start - start)


def read_plain_run(reader: MessageReader, at: int, stop: int) -> tuple[dict[str, TensorPlace], int]:
    """Return tensors of a graph that follow each other from a byte on, as far as was read ahead, and where they end.

    Listing a model takes the time of this loop, so it calls nothing that it need not.
    """
    found: dict[str, TensorPlace] = {}
    window = reader.window(at, _MAX_HEAD_NBYTES)
    if window is None:
        return found, at
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
        if plain is None or not data.startswith(plain.raw, name_stop) or next_index > most:
            break
        elements_start = name_stop + len(plain.raw)
        if elements_start + plain.nbytes != next_index:
            break
        try:
            name = data[name_start:name_stop].decode()
        except UnicodeDecodeError:
            break
        if name in found:
            break
        found[name] = TensorPlace(plain.dtype, plain.shape, at + elements_start - first)
        index = next_index
    reader.count(len(found))
    return found, at + index - first


class _Plain(msgspec.Struct, frozen=True):
    """What the head of a tensor says.

    Attributes:
        dtype: Its dtype.
        shape: Elements along each dimension.
        nbytes: Bytes of all elements.
        raw: What is before the elements.
    """

    dtype: str
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
    return _Plain(data_type.dtype, tuple(shape), nbytes, _RAW + emit_varint(nbytes))


@lru_cache(maxsize=4096)
def _number(data: bytes) -> int:
    return parse_varint(data, 0)[0]

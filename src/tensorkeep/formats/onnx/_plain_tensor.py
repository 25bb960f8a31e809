"""Tensors as almost every program writes them, found in one look: dims, data type, name and raw bytes, in this order.

A model has thousands of them, and walking each field by field takes five times as long. Whatever differs in any way
is left to the walk, which also says what is wrong.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod
from typing import Final

from tensorkeep.formats._contents import TensorPlace
from tensorkeep.formats.onnx._dtypes import DATA_TYPES
from tensorkeep.formats.protobuf import MessageReader, parse_varint
from tensorkeep.limits import MAX_I64
from tensorkeep.transport import ByteRange

_MAX_HEAD_NBYTES: Final = 512
"""Bytes of a tensor before its elements: a name of 300 characters and 20 dimensions fit."""

_head = re.compile(
    rb"((?:\x08[\x80-\xff]{0,8}+[\x00-\x7f]){0,64}+)"  # dims
    rb"\x10([\x00-\x7f])"  # data type
    rb"\x42([\x00-\x7f]|[\x80-\xff][\x01-\x7f])"  # length of the name
).match
_RAW: Final = 0x4A


def read_plain(reader: MessageReader, span: ByteRange) -> tuple[str, TensorPlace] | None:
    """Return the name of a tensor and where its elements are; None if it is not written in the usual way."""
    window = reader.window(span.start, min(len(span), _MAX_HEAD_NBYTES))
    if window is None:
        return None
    data, start = window
    found = _head(data, start)
    if found is None:
        return None
    dims, number, length = found.groups()
    name_start = found.end()
    name_stop = name_start + (length[0] if len(length) == 1 else (length[0] & 127) | length[1] << 7)
    if name_stop + 2 > start + min(len(span), _MAX_HEAD_NBYTES) - 10 or data[name_stop] != _RAW:
        return None
    nbytes, stop = parse_varint(data, name_stop + 1)
    elements_start = span.start + stop - start
    dtype, shape, expected_nbytes = _described(dims, number[0])
    if dtype is None or nbytes != expected_nbytes or elements_start + nbytes != span.stop:
        return None
    try:
        name = data[name_start:name_stop].decode()
    except UnicodeDecodeError:
        return None
    return name, TensorPlace(dtype, shape, elements_start)


@lru_cache(maxsize=4096)
def _described(dims: bytes, number: int) -> tuple[str | None, tuple[int, ...], int]:
    """Return dtype, shape and bytes of a tensor; no dtype if its elements are not whole bytes of a known one."""
    data_type = DATA_TYPES.get(number)
    shape: list[int] = []
    index = 0
    while index < len(dims):
        extent, index = parse_varint(dims, index + 1)
        shape.append(extent)
    n_elements = prod(shape)
    is_plain = data_type is not None and data_type.bits >= 8 and prod(extent or 1 for extent in shape) <= MAX_I64
    if data_type is None or not is_plain:
        return None, (), 0
    return data_type.dtype, tuple(shape), data_type.nbytes(n_elements)

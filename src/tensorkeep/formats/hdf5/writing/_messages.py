"""The messages of object headers: links of groups, places of datasets, attributes. Pure."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from tensorkeep.dtypes import DType
from tensorkeep.errors import LimitError
from tensorkeep.formats.hdf5.writing._datatypes import datatype_of, text_datatype

UNDEFINED: Final = b"\xff" * 8
"""An address of nothing."""

_SPACE, _LINK_INFO, _TYPE, _FILL, _LINK, _PLACE, _GROUP_INFO, _ATTRIBUTE = 1, 2, 3, 5, 6, 8, 10, 12
_MAX_MESSAGES: Final = 2**16 - 1
MAX_NAME_NBYTES: Final = 2**15
"""Bytes of a name; a message has fewer than 65,536 with what else is in it."""
_SCALAR_SPACE: Final = b"\1\0\0\0\0\0\0\0"


def object_header(messages: Sequence[bytes]) -> bytes:
    """Return a header of messages, in the first version, which has no checksum."""
    if len(messages) > _MAX_MESSAGES:
        raise LimitError(
            "a group has too many entries for HDF5", expected=f"at most {_MAX_MESSAGES:,}", found=f"{len(messages):,}"
        )
    body = b"".join(messages)
    return struct.pack("<BxHII4x", 1, len(messages), 1, len(body)) + body


def group_messages() -> list[bytes]:
    """Return the messages of a group, whose links follow in its header."""
    return [_message(_LINK_INFO, b"\0\0" + 2 * UNDEFINED), _message(_GROUP_INFO, b"\0\0")]


def link(name: bytes, address: int) -> bytes:
    """Return a link to an object."""
    flags, charset = 0x11, 1
    return _message(_LINK, struct.pack("<BBBH", 1, flags, charset, len(name)) + name + address.to_bytes(8, "little"))


def dataset_messages(dtype: DType, shape: tuple[int, ...], start: int, nbytes: int) -> list[bytes]:
    """Return the messages of a dataset whose elements are in one place."""
    place = start.to_bytes(8, "little") if nbytes else UNDEFINED
    space = struct.pack("<BBB5x", 1, len(shape), 0) + b"".join(extent.to_bytes(8, "little") for extent in shape)
    allocated_early, fill_never = 1, 1
    return [
        _message(_SPACE, space),
        _message(_TYPE, datatype_of(dtype)),
        _message(_FILL, bytes([2, allocated_early, fill_never, 0])),
        _message(_PLACE, b"\3\1" + place + nbytes.to_bytes(8, "little")),
    ]


def text_attribute(name: bytes, nbytes: int, heap: int, number: int) -> bytes:
    """Return an attribute whose text is an object of a heap."""
    parts = (name + b"\0", text_datatype(), _SCALAR_SPACE)
    head = struct.pack("<BxHHH", 1, *map(len, parts))
    value = struct.pack("<IQI", nbytes, heap, number)
    return _message(_ATTRIBUTE, head + b"".join(map(_padded, parts)) + value)


def heap_of(texts: Sequence[bytes]) -> bytes:
    """Return a global heap of texts, which are numbered from 1."""
    objects = b"".join(
        struct.pack("<HH4xQ", number, 1, len(text)) + _padded(text) for number, text in enumerate(texts, 1)
    )
    nbytes = max(4096, 16 + len(objects) + 16)
    rest = nbytes - 16 - len(objects)
    return b"GCOL" + struct.pack("<B3xQ", 1, nbytes) + objects + struct.pack("<HH4xQ", 0, 0, rest).ljust(rest, b"\0")


def superblock(root: int, end: int) -> bytes:
    """Return the first bytes of a file: version 0, which all readers know."""
    sizes = bytes([0, 0, 0, 0, 0, 8, 8, 0]) + struct.pack("<HHI", 4, 16, 0)
    addresses = bytes(8) + UNDEFINED + end.to_bytes(8, "little") + UNDEFINED
    entry = struct.pack("<QQI4x16x", 0, root, 0)
    return b"\x89HDF\r\n\x1a\n" + sizes + addresses + entry


def encoded_name(name: str) -> bytes:
    """Return a name as it is stored, which must fit a message."""
    encoded = name.encode()
    if len(encoded) > MAX_NAME_NBYTES:
        raise LimitError("a name is too long for HDF5", expected=f"at most {MAX_NAME_NBYTES:,} bytes")
    return encoded


def _message(kind: int, data: bytes) -> bytes:
    padded = _padded(data)
    return struct.pack("<HHB3x", kind, len(padded), 0) + padded


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)

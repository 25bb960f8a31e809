"""Whether bytes are such a file. Nothing at its start says so: any byte can begin a value of MessagePack."""

from __future__ import annotations

from tensorkeep.errors import FormatError, RefusedError
from tensorkeep.formats.msgpack._read import read_document
from tensorkeep.transport import ByteRange, ByteSource

_LONG_MAPS = (0xDE, 0xDF)


def is_msgpack(source: ByteSource) -> bool:
    """Say whether bytes are a map of MessagePack, from the first to the last one, with an array in it."""
    if not source.nbytes or not begins_with_entries(source.read(ByteRange(0, 1))[0]):
        return False
    try:
        return bool(read_document(source).arrays)
    except (FormatError, RefusedError):
        return False


def begins_with_entries(byte: int) -> bool:
    """Say whether a byte begins a map that is not empty; an empty one begins like a pickle."""
    return 0x81 <= byte <= 0x8F or byte in _LONG_MAPS

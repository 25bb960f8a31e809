"""The bytes of an index: a table of sorted keys and values in blocks, as TensorFlow writes it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final

from tensorkeep.digests import crc32c, masked
from tensorkeep.formats.protobuf import emit_varint
from tensorkeep.formats.tensorflow._bundle import BundledTensor
from tensorkeep.formats.tensorflow._dtypes import BY_NUMBER
from tensorkeep.formats.tensorflow._table import FOOTER_NBYTES, MAGIC

_VERSION: Final = b"\x1a\x02\x08\x01"
"""Version 1; without another field, numbers are little endian."""

_BLOCK_NBYTES: Final = 2**18
_INTERVAL: Final = 16
"""Every so many keys of a block, one is whole."""

_NUMBERS: Final = {dtype: number for number, dtype in BY_NUMBER.items()}

_Row = tuple[bytes, bytes]


def emit_index(tensors: Mapping[str, BundledTensor], n_shards: int) -> bytes:
    """Return the index of whole tensors that are in the first of several data files."""
    keys = sorted((name.encode(), tensor) for name, tensor in tensors.items())
    rows = chain([(b"", _number(1, n_shards) + _VERSION)], ((key, _entry(tensor)) for key, tensor in keys))
    data = bytearray()
    pointers = [(part[-1][0], _add_block(data, _block(part, _INTERVAL))) for part in _parts(rows)]
    handles = _add_block(data, _block([], 1)) + _add_block(data, _block(pointers, 1))
    return bytes(data) + handles.ljust(FOOTER_NBYTES - len(MAGIC), b"\0") + MAGIC


def _entry(tensor: BundledTensor) -> bytes:
    (part,) = tensor.parts
    extents = b"".join(_message(2, _number(1, extent)) for extent in tensor.shape)
    return b"".join((
        _number(1, _NUMBERS[tensor.dtype]),
        _message(2, extents),
        _number(4, part.start),
        _number(5, part.stop - part.start),
        b"\x35" + masked(part.crc).to_bytes(4, "little"),
    ))


def _number(field: int, value: int) -> bytes:
    """Return a field that is a number; zeros are left out."""
    return emit_varint(field << 3) + emit_varint(value) if value else b""


def _message(field: int, content: bytes) -> bytes:
    return emit_varint(field << 3 | 2) + emit_varint(len(content)) + content


def _parts(rows: Iterable[_Row]) -> Iterable[list[_Row]]:
    """Yield the rows of each block."""
    part: list[_Row] = []
    nbytes = 0
    for row in rows:
        part.append(row)
        nbytes += len(row[0]) + len(row[1])
        if nbytes >= _BLOCK_NBYTES:
            yield part
            part, nbytes = [], 0
    if part:
        yield part


def _block(rows: list[_Row], interval: int) -> bytes:
    """Return rows whose keys share their beginnings, and where whole keys are."""
    data = bytearray()
    restarts = [0]
    last = b""
    for place, (key, value) in enumerate(rows):
        n_shared = _n_common(last, key) if place % interval else 0
        if place and not place % interval:
            restarts.append(len(data))
        data += emit_varint(n_shared) + emit_varint(len(key) - n_shared) + emit_varint(len(value))
        data += key[n_shared:] + value
        last = key
    for number in (*restarts, len(restarts)):
        data += number.to_bytes(4, "little")
    return bytes(data)


def _n_common(first: bytes, second: bytes) -> int:
    pairs = zip(first, second, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))


def _add_block(data: bytearray, content: bytes) -> bytes:
    """Add a block with its checksum, and return where it is."""
    handle = emit_varint(len(data)) + emit_varint(len(content))
    body = content + b"\0"  # not compressed
    data += body + masked(crc32c(body)).to_bytes(4, "little")
    return handle

"""The header before each tensor, which repeats the index and has hashes of itself and the elements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from tensorkeep.digests import CRC32, SHA256, Algorithm
from tensorkeep.errors import FormatError
from tensorkeep.formats.tensorizer._bytes import Cursor
from tensorkeep.formats.tensorizer._index import StoredTensor
from tensorkeep.transport import ByteRange, ByteSource

_CRC32, _SHA256 = 0, 1
_CRC32_NBYTES, _SHA256_NBYTES = 4, 32
_MAX_HEADER_NBYTES: Final = 2**18
"""Name and hashes take up to 64 KiB each, dtype and shape 2 KiB."""

_BATCH_NBYTES: Final = 2**24


class HeaderSum(msgspec.Struct, frozen=True):
    """The strongest hash of a tensor: of its header, in which hashes count as zeros, and its elements.

    Attributes:
        algorithm: CRC-32 or SHA-256.
        expected: The hash.
        zeros: Where in the file the hashes are that count as zeros.
    """

    algorithm: Algorithm
    expected: bytes
    zeros: tuple[ByteRange, ...]


def read_sums(
    source: ByteSource, tensors: Mapping[str, StoredTensor]
) -> Iterator[tuple[str, HeaderSum | FormatError | None]]:
    """Yield the name of each tensor with its hash (None without one), or what is wrong with its header."""
    names = list(tensors)
    while names:
        batch, nbytes = 0, 0
        while batch < len(names) and nbytes < _BATCH_NBYTES:
            nbytes += min(len(tensors[names[batch]].header), _MAX_HEADER_NBYTES)
            batch += 1
        now, names = names[:batch], names[batch:]
        blocks = {name: bytearray(min(len(tensors[name].header), _MAX_HEADER_NBYTES)) for name in now}
        source.read_into([(tensors[name].header.start, memoryview(blocks[name])) for name in now if blocks[name]])
        for name in now:
            try:
                yield name, _sum_in(bytes(blocks[name]), name, tensors[name])
            except FormatError as error:
                yield name, error


def _sum_in(data: bytes, name: str, tensor: StoredTensor) -> HeaderSum | None:
    header = Cursor(data, f"the header of tensor `{name}`")
    nbytes, _, _ = header.number("Q"), header.number("H"), header.number("B")
    path, dtype, shape = header.counted("H"), header.counted("B"), header.shape(tensor.extent_code)
    found = (nbytes, path, dtype.decode("latin-1"), shape)
    expected = (len(tensor.header), tensor.path, tensor.dtype, tensor.shape)
    hashes = header.counted("H")
    start = tensor.header.start + header.position - len(hashes)
    elements_nbytes = header.number("q")
    if found != expected or elements_nbytes != tensor.nbytes or header.position != len(data):
        raise FormatError(f"the header of tensor `{name}` is not what the index says", tensor=name)
    return _strongest(Cursor(hashes, f"the hashes of tensor `{name}`"), start) if hashes else None


def _strongest(hashes: Cursor, start: int) -> HeaderSum | None:
    zeros: list[ByteRange] = []
    known: dict[int, bytes] = {}
    for _ in range(hashes.number("B")):
        kind, value = hashes.number("B"), hashes.counted("B")
        stop = start + hashes.position
        zeros.append(ByteRange(stop - len(value), stop))
        known[kind] = value
    if len(known.get(_SHA256, b"")) == _SHA256_NBYTES:
        return HeaderSum(SHA256, known[_SHA256], tuple(zeros))
    if len(known.get(_CRC32, b"")) == _CRC32_NBYTES:
        return HeaderSum(CRC32, known[_CRC32][::-1], tuple(zeros))
    return None

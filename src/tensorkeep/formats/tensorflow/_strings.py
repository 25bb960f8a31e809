"""Tensors of strings: the length of each, a checksum of these, and then the bytes of all. Pure."""

from __future__ import annotations

from itertools import pairwise
from typing import Final, Literal

from tensorkeep.buffers import Buffer
from tensorkeep.digests import Algorithm, Crc32c, Hasher, unmasked
from tensorkeep.errors import FormatError
from tensorkeep.formats.protobuf import parse_varint

_ByteOrder = Literal["big", "little"]

_SUM_NBYTES: Final = 4
_SHORT: Final = 2**32
"""Lengths below this are summed as 4 bytes, others as 8."""


def parse_strings(data: bytes, n_strings: int, *, is_big_endian: bool = False) -> list[bytes]:
    """Return the strings in the bytes of a tensor."""
    lengths, at = _lengths(data, n_strings)
    byte_order = _byte_order(is_big_endian)
    sum_ = Crc32c()
    sum_.update(b"".join(_summed(length, byte_order) for length in lengths))
    stored = int.from_bytes(data[at : at + _SUM_NBYTES], byte_order)
    at += _SUM_NBYTES
    if unmasked(stored) != sum_.value() or at + sum(lengths) != len(data):
        raise FormatError(
            "the lengths of strings are damaged",
            expected=f"{len(data):,} bytes with CRC-32C 0x{unmasked(stored):08x}",
            found=f"{at + sum(lengths):,} with 0x{sum_.value():08x}",
        )
    ends = [at]
    for length in lengths:
        ends.append(ends[-1] + length)
    return [data[start:stop] for start, stop in pairwise(ends)]


def string_crc(n_strings: int, *, is_big_endian: bool) -> Algorithm:
    """Return how the bytes of a tensor of strings are summed: as if its lengths were of fixed size."""
    return Algorithm("CRC-32C", lambda _: _StringHasher(n_strings, _byte_order(is_big_endian)))


class _StringHasher(Hasher):
    """Sums a tensor of strings."""

    def __init__(self, n_strings: int, byte_order: _ByteOrder) -> None:
        self._n_left = n_strings
        self._byte_order = byte_order
        self._head = b""
        self._sum = Crc32c()

    def update(self, data: Buffer, /) -> None:
        rest = data
        if self._n_left:
            self._head += bytes(data)
            rest = self._sum_lengths()
        self._sum.update(rest)

    def _sum_lengths(self) -> bytes:
        """Sum the lengths that are complete, and return what follows the last one."""
        at = 0
        summed = []
        while self._n_left:
            try:
                length, at = parse_varint(self._head, at)
            except IndexError:
                break
            summed.append(_summed(length, self._byte_order))
            self._n_left -= 1
        self._sum.update(b"".join(summed))
        rest, self._head = self._head[at:], b"" if not self._n_left else self._head[at:]
        return b"" if self._n_left else rest

    def digest(self) -> bytes:
        return self._sum.digest()


def _lengths(data: bytes, n_strings: int) -> tuple[list[int], int]:
    if n_strings + _SUM_NBYTES > len(data):
        raise _too_short()
    found = []
    at = 0
    try:
        for _ in range(n_strings):
            length, at = parse_varint(data, at)
            found.append(length)
    except IndexError:
        raise _too_short() from None
    return found, at


def _too_short() -> FormatError:
    return FormatError("the lengths of strings are damaged", expected="one for each string", found="fewer")


def _byte_order(is_big_endian: bool) -> _ByteOrder:
    return "big" if is_big_endian else "little"


def _summed(length: int, byte_order: _ByteOrder) -> bytes:
    return length.to_bytes(4 if length < _SHORT else 8, byte_order)

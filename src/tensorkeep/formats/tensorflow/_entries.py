"""The values of a checkpoint's index: a header, and where each tensor or part of one is. Pure."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from math import prod
from typing import Final, NoReturn, TypeAlias

import msgspec

from tensorkeep.errors import FormatError, LimitError, UnsupportedError
from tensorkeep.formats.protobuf import Value, decode_varints, parse_message, signed32, signed64
from tensorkeep.formats.tensorflow._dtypes import BY_NUMBER, ForeignDType
from tensorkeep.limits import MAX_I64, MAX_LISTED_NDIM

_VERSION: Final = 1
"""The version of the format, which has been the same since 2016."""

Slice = tuple[tuple[int, int], ...]
"""For each dimension, the first element and the number of elements; `WHOLE` for all."""

WHOLE: Final = (0, -1)


class Header(msgspec.Struct, frozen=True):
    """What the index says of all tensors.

    Attributes:
        n_shards: Number of data files.
        is_big_endian: Whether numbers in them have their highest byte first.
    """

    n_shards: int
    is_big_endian: bool


class Entry(msgspec.Struct, frozen=True, gc=False):
    """Where a tensor or one part of it is.

    Attributes:
        dtype: Its dtype.
        shape: Elements along each dimension.
        shard: Number of the data file.
        start: First byte in that file.
        nbytes: Bytes in that file.
        stored_crc: Their CRC-32C, masked.
        slices: The parts of a tensor that is in parts; each has an entry of its own.
    """

    dtype: ForeignDType
    shape: tuple[int, ...]
    shard: int = 0
    start: int = 0
    nbytes: int = 0
    stored_crc: int = 0
    slices: tuple[Slice, ...] = ()


def parse_header(data: bytes) -> Header:
    """Read the header."""
    n_shards, byte_order = 0, 0
    for number, value in parse_message(data):
        if number == 1:
            n_shards = _number(value)
        elif number == 2:
            byte_order = _number(value)
        elif number == 3:
            _check_version(value)
    if not 0 <= signed32(n_shards) == n_shards or byte_order not in {0, 1}:
        _refuse("the header", "a number of files and a byte order", f"{n_shards} and {byte_order}")
    return Header(n_shards, byte_order == 1)


def _check_version(data: Value) -> None:
    for number, value in parse_message(_message(data)):
        if (number == 2 and signed32(_number(value)) > _VERSION) or (number == 3 and value == _VERSION):
            raise UnsupportedError(
                "the checkpoint is of a later version of TensorFlow's format",
                expected=f"version {_VERSION}",
                found=f"version {value!r} or later" if number == 2 else "one that excludes this version",
            )


_VARINT: Final = rb"([\x80-\xff]{0,8}[\0-\x7f])"
_match_usual = re.compile(
    rb"(\x08[\x01-\x7f]\x12.(?:\x12.(?:\x08[\x80-\xff]*[\0-\x7f])?)*)"
    rb"(?:\x18%b)?(?:\x20%b)?(?:\x28%b)?\x35(.{4})" % (_VARINT, _VARINT, _VARINT),
    re.DOTALL,
).fullmatch
"""What TensorFlow writes: dtype and shape, then file, place, size and checksum, without those that are zero."""

_ZERO: Final = b"\0"

_Usual: TypeAlias = tuple[Entry, bytes, bytes, bytes, bytes]
"""A usual entry: dtype and shape, and the bytes of its numbers."""


class EntryParser:
    """Parses entries; a dtype and shape that occur again are parsed once."""

    def __init__(self) -> None:
        self._shapes: dict[Value, tuple[int, ...]] = {}
        self._heads: dict[bytes, Entry | None] = {}

    def parse(self, values: Iterable[bytes]) -> list[Entry]:
        """Read entries; the numbers of all usual ones are decoded at once."""
        found = [self._divide(value) or self._parse_any(value) for value in values]
        usual = iter(_decoded([each for each in found if not isinstance(each, Entry)]))
        return [each if isinstance(each, Entry) else next(usual) for each in found]

    def _divide(self, data: bytes) -> _Usual | None:
        """Return the parts of an entry; None if it is not a usual one."""
        match = _match_usual(data)
        if match is None:
            return None
        first, shard, start, nbytes, crc = match.groups(_ZERO)
        if first not in self._heads:
            self._heads[first] = self._parse_head(first)
        head = self._heads[first]
        return None if head is None else (head, shard, start, nbytes, crc)

    def _parse_head(self, data: bytes) -> Entry | None:
        """Return dtype and shape; None if the fields after them belong to the shape."""
        try:
            return self._parse_any(data)
        except FormatError:
            return None

    def _parse_any(self, data: bytes) -> Entry:
        """Read one entry field by field, whatever their order."""
        found: dict[int, Value] = {}
        slices: list[Slice] = []
        for number, value in parse_message(data):
            if number == 7:
                slices.append(_slice(_message(value)))
            elif number in found:
                _refuse("an entry", "each field once", f"field {number} twice")
            else:
                found[number] = value
        shape = found.pop(2, b"")
        if shape not in self._shapes:
            self._shapes[shape] = _shape(_message(shape))
        dtype, shard, start, nbytes, crc = (_number(found.get(number, 0)) for number in (1, 3, 4, 5, 6))
        if dtype not in BY_NUMBER:
            _refuse("a dtype", "the number of one of TensorFlow's", str(dtype))
        _check_place(shard, start, nbytes)
        return Entry(BY_NUMBER[dtype], self._shapes[shape], shard, start, nbytes, crc, tuple(slices))


def _decoded(usual: list[_Usual]) -> list[Entry]:
    """Return usual entries with their numbers."""
    if not usual:
        return []
    heads, *numbers, crcs = zip(*usual, strict=True)
    shards, starts, sizes = (decode_varints(b"".join(column)).tolist() for column in numbers)
    if max(starts) + max(sizes) > MAX_I64:
        for place in zip(shards, starts, sizes, strict=True):
            _check_place(*place)
    stored = struct.unpack(f"<{len(crcs)}I", b"".join(crcs))
    return [
        Entry(head.dtype, head.shape, shard, start, nbytes, crc)
        for head, shard, start, nbytes, crc in zip(heads, shards, starts, sizes, stored, strict=True)
    ]


def _check_place(shard: int, start: int, nbytes: int) -> None:
    if shard > MAX_I64 or start + nbytes > MAX_I64:
        _refuse("a place", "bytes of a file", f"{nbytes:,} from byte {start:,} of file {shard}")


def _shape(data: bytes) -> tuple[int, ...]:
    extents = []
    for number, value in parse_message(data):
        if number == 2:
            sizes = [_number(size) for part, size in parse_message(_message(value)) if part == 1]
            extents.append(sizes[-1] if sizes else 0)
        elif number == 3 and value:
            _refuse("a shape", "a known number of dimensions", "an unknown one")
    if len(extents) > MAX_LISTED_NDIM:
        raise LimitError("a tensor has too many dimensions", expected=f"at most {MAX_LISTED_NDIM:,}")
    if prod(extent or 1 for extent in extents) > MAX_I64:
        _refuse("a shape", "one that a tensor can have", f"{extents!r:.100}")
    return tuple(extents)


def _slice(data: bytes) -> Slice:
    extents = []
    for number, value in parse_message(data):
        if number == 1:
            parts = dict(parse_message(_message(value)))
            is_whole = 2 not in parts
            start, length = (signed64(_number(parts.get(part, 0))) for part in (1, 2))
            if min(start, length) < 0 or (is_whole and start):
                _refuse("a slice", "a start and a length", f"{start} and {length}")
            extents.append(WHOLE if is_whole else (start, length))
    if len(extents) > MAX_LISTED_NDIM:
        raise LimitError("a slice has too many dimensions", expected=f"at most {MAX_LISTED_NDIM:,}")
    return tuple(extents)


def _number(value: Value) -> int:
    if isinstance(value, bytes):
        _refuse("a field", "a number", f"{len(value)} bytes")
    return value


def _message(value: Value) -> bytes:
    if isinstance(value, int):
        _refuse("a field", "a message", f"the number {value}")
    return value


def _refuse(what: str, expected: str, found: str) -> NoReturn:
    raise FormatError(f"{what} of the index is not as TensorFlow writes it", expected=expected, found=found)

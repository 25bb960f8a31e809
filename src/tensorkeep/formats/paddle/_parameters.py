"""Paddle's streams of tensors (`.pdiparams`): each has a short description and its bytes, and none has a name.

u32 version 0, u64 count of levels, and for each level u64 length and so many bytes
u32 version 0, i32 length of a message with dtype and shape, the message, the bytes of the elements
"""

from __future__ import annotations

from math import prod
from typing import Final

from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.errors import FormatError, LimitError, UnsupportedError
from tensorkeep.formats._contents import FileContents, TensorPlace
from tensorkeep.formats.protobuf import LENGTH, VARINT, MessageReader, count_varints, read_varints
from tensorkeep.limits import MAX_I64, MAX_NDIM, MAX_PADDLE_TENSORS
from tensorkeep.transport import ByteRange, ByteSource, MemorySource

_NUMBERED: Final = (
    (0, "BOOL I16 I32 I64 F16 F32 F64"),
    (20, "U8 I8 BF16 C64 C128"),
    (32, "F8_E4M3 F8_E5M2"),
    (36, "U16 U32 U64"),
)
_DTYPES: Final = {first + place: name for first, names in _NUMBERED for place, name in enumerate(names.split())}
"""Numbers of Paddle's `VarType.Type` to names in the dtype table."""

_FIRST_NBYTES: Final = 4096
_VERSION_NBYTES: Final = 4
_LEVELS_STOP: Final = 12
_LENGTH_STOP: Final = 20
_MAX_MESSAGE_NBYTES: Final = 1024
"""Bytes of one description: a dtype, and a number for each dimension."""

_MAX_LEVELS: Final = 16
"""Levels of detail before a tensor; parameters have none."""

_ALONE: Final = "tensor"


def is_parameters(source: ByteSource) -> bool:
    """Say whether a file begins as a stream of tensors does: two versions, no levels, a dtype."""
    head = bytes(source.read(ByteRange(0, min(_LENGTH_STOP + 1, source.nbytes))))
    length = int.from_bytes(head[16:_LENGTH_STOP], "little")
    return head[:16] == bytes(16) and 1 < length <= _MAX_MESSAGE_NBYTES and head[_LENGTH_STOP:] == b"\x08"


def parse_parameters(source: ByteSource) -> FileContents:
    """Read the descriptions of all tensors; they are called by their numbers, and one alone `tensor`."""
    stream = _Stream(source)
    places: list[TensorPlace] = []
    position = 0
    while position < source.nbytes:
        if len(places) == MAX_PADDLE_TENSORS:
            raise LimitError("there are too many tensors in the file", expected=f"at most {MAX_PADDLE_TENSORS:,}")
        dtype, shape, position = stream.describe(position)
        places.append(TensorPlace(dtype, shape, position))
        position += ALL_BY_NAME[dtype].nbytes(prod(shape))
    names = [_ALONE] if len(places) == 1 else map(str, range(len(places)))
    return FileContents(dict(zip(names, places, strict=True)))


class _Stream:
    """Reads descriptions, and some bytes ahead, so that small tensors take one read together."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._ahead_nbytes = max(_FIRST_NBYTES, source.gap_nbytes)
        self._data = b""
        self._start = 0

    def _read(self, start: int, nbytes: int) -> bytes:
        stop = start + nbytes
        if stop > self._source.nbytes:
            raise FormatError(
                "the file ends before a tensor does",
                expected=f"at least {stop:,} bytes",
                found=f"{self._source.nbytes:,}",
                hint="If it was cut off, get it again",
            )
        if not self._start <= start <= stop <= self._start + len(self._data):
            ahead = ByteRange(start, min(max(stop, start + self._ahead_nbytes), self._source.nbytes))
            self._data, self._start = bytes(self._source.read(ahead)), start
        return self._data[start - self._start : stop - self._start]

    def describe(self, start: int) -> tuple[str, tuple[int, ...], int]:
        """Return dtype and shape of the tensor that is described at a position, and where its elements begin."""
        head = self._read(start, _LEVELS_STOP)
        position = start + _LEVELS_STOP
        n_levels = int.from_bytes(head[_VERSION_NBYTES:], "little")
        for _ in range(min(n_levels, _MAX_LEVELS)):
            position += 8 + int.from_bytes(self._read(position, 8), "little")
        second = self._read(position, 8)
        length = int.from_bytes(second[_VERSION_NBYTES:], "little")
        has_versions = not any(head[:_VERSION_NBYTES] + second[:_VERSION_NBYTES])
        if n_levels > _MAX_LEVELS or not has_versions or not 0 < length <= _MAX_MESSAGE_NBYTES:
            raise FormatError("no tensor of Paddle's begins here", found=f"{(head + second).hex(' ')} at {start:,}")
        dtype, shape = _described(self._read(position + 8, length))
        return dtype, shape, position + 8 + length


def _described(message: bytes) -> tuple[str, tuple[int, ...]]:
    """Read a message of dtype and shape."""
    number: int | None = None
    shape: list[int] = []
    for field in MessageReader(message).fields():
        if field.number == 1:
            if number is not None:
                raise FormatError("a tensor has two dtypes", found=f"{number} and {field.value}")
            number = field.int32
        elif field.number == 2 and field.wire_type == VARINT:
            shape.append(field.int64)
        elif field.number == 2:
            field.expect(LENGTH)
            if count_varints(message[field.start : field.stop]) <= MAX_NDIM:
                shape += [
                    extent
                    for part in read_varints(MemorySource(message), field.span)
                    for extent in part.view("i8").tolist()
                ]
    if len(shape) > MAX_NDIM or min(shape, default=0) < 0 or prod(extent or 1 for extent in shape) > MAX_I64:
        raise FormatError("no tensor has this shape", found=f"{shape!r:.100}")
    if number not in _DTYPES:
        raise UnsupportedError("a tensor has a dtype that Paddle does not have", found=f"number {number}")
    return _DTYPES[number], tuple(shape)

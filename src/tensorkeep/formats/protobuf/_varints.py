"""Numbers of variable length: seven bits in each byte, lowest first, and a high bit on all bytes but the last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from tensorkeep.errors import FormatError, UnsupportedError
from tensorkeep.transport import ByteRange, ByteSource

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_VARINT_NBYTES: Final = 10
"""Bytes that 64 bits take."""

_PIECE_NBYTES: Final = 2**18
"""Bytes decoded at a time: what is computed of so many stays in the CPU caches."""

_HIGH: Final = bytes(range(128, 256))


def parse_varint(data: bytes, index: int) -> tuple[int, int]:
    """Return a number and the index after it; raises IndexError if the bytes end first."""
    value = 0
    for shift in range(0, 7 * MAX_VARINT_NBYTES, 7):
        byte = data[index]
        index += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    else:
        raise _too_long()
    if value >= 2**64:
        raise UnsupportedError("a number of a message has more than 64 bits: other readers drop some")
    return value, index


def emit_varint(value: int) -> bytes:
    """Return the bytes of a number that is not negative."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def count_varints(data: bytes) -> int:
    """Return how many numbers end in some bytes."""
    return len(data.translate(None, _HIGH))


def read_varints(source: ByteSource, span: ByteRange) -> Iterator[NDArray[np.uint64]]:
    """Yield the unsigned 64-bit numbers of a packed field as arrays, piece by piece."""
    rest = b""
    for start in range(span.start, span.stop, _PIECE_NBYTES):
        data = rest + bytes(source.read(ByteRange(start, min(start + _PIECE_NBYTES, span.stop))))
        n_used = len(data) - _n_open(data)
        rest = data[n_used:]
        yield decode_varints(data[:n_used])
    if rest:
        raise FormatError("packed numbers of a message end within a number", path=source.name)


def _n_open(data: bytes) -> int:
    """Return how many bytes at the end belong to a number that is not complete."""
    tail = data[-MAX_VARINT_NBYTES:]
    n_open = len(tail) - len(tail.rstrip(_HIGH))
    if n_open == MAX_VARINT_NBYTES:
        raise _too_long()
    return n_open


def decode_varints(data: bytes) -> NDArray[np.uint64]:
    """Return the numbers of bytes whose last one ends a number: one step for each byte of the longest."""
    import numpy as np

    found = np.frombuffer(data, np.uint8)
    if data.isascii():
        return found.astype(np.uint64)
    stops = np.flatnonzero(found < 0x80) + 1
    starts: Any = np.concatenate([[0], stops[:-1]])
    nbytes = stops - starts
    if (
        nbytes.max() > MAX_VARINT_NBYTES
        or (found[starts[nbytes == MAX_VARINT_NBYTES] + MAX_VARINT_NBYTES - 1] > 1).any()
    ):
        raise _too_long()
    numbers: NDArray[np.uint64] = (found[starts] & 0x7F).astype(np.uint64)
    for place in range(1, int(nbytes.max())):
        longer = np.flatnonzero(nbytes > place)
        numbers[longer] |= (found[starts[longer] + place] & np.uint64(0x7F)) << np.uint64(7 * place)
    return numbers


def _too_long() -> FormatError:
    return FormatError("a number of a message is longer than 64 bits", expected=f"at most {MAX_VARINT_NBYTES} bytes")

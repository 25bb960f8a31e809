"""The opcodes of a pickle in order, read without executing any."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Final

from tensorkeep.formats.pickles.machine._opcodes import OPCODES, Opcode

MAX_ARGUMENT_NBYTES: Final = 1000
"""Bytes of an argument that are given: no honest name is longer."""

_FIXED_NBYTES: Final = {"none": 0, "u1": 1, "u2": 2, "u4": 4, "i4": 4, "u8": 8, "f8": 8}
_LINES: Final = frozenset(("line", "two lines"))
_COUNT_NBYTES: Final = {"1+bytes": 1, "4+bytes": 4, "8+bytes": 8}


def each_opcode(data: bytes, start: int, left_out: Container[int] = ()) -> Iterator[tuple[int, Opcode, bytes, int]]:
    """Give position, opcode, argument and next position of each opcode, as far as they can be read.

    `left_out` has the positions of long arguments that are not in the data.
    """
    position = start
    while position < len(data):
        opcode = OPCODES.get(data[position])
        if opcode is None:
            return
        span = _argument(data, position + 1, opcode, left_out)
        if span is None or span[1] > len(data):
            return
        first, position_after = span
        last = position_after - (opcode.argument in _LINES)
        yield position, opcode, data[first : min(last, first + MAX_ARGUMENT_NBYTES)], position_after
        position = position_after


def memo_key(kind: str, argument: bytes) -> int:
    """Return the number of a memo entry that an opcode puts or gets; -1 if it is not written as a number is."""
    if kind in {"PUT", "GET"}:
        return int(argument) if argument.isdigit() and len(argument) < 20 else -1
    return int.from_bytes(argument, "little")


def _argument(data: bytes, place: int, opcode: Opcode, left_out: Container[int]) -> tuple[int, int] | None:
    """Return start and end of an argument; None if it has no end."""
    kind = opcode.argument
    if kind in _FIXED_NBYTES:
        return place, place + _FIXED_NBYTES[kind]
    if kind in _COUNT_NBYTES:
        first = place + _COUNT_NBYTES[kind]
        return first, first if first in left_out else first + int.from_bytes(data[place:first], "little")
    end = data.find(b"\n", place)
    if kind == "two lines":
        if end >= 0:
            end = data.find(b"\n", end + 1)
        if end < 0:  # one of Python's readers takes such a name without its last character
            return place, len(data)
    return None if end < 0 else (place, end + 1)

"""A bare pickle without its long values of bytes, which stay in the file: the elements of large arrays.

A pickle has no index, so its opcodes are read in order; but only far enough to see how long each value is. Frames are
passed as a whole: Python's pickler writes long values between them. What is left out is found here by the same rules
by which the machine moves from opcode to opcode, and the machine checks that it meets each exactly where it was.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import Any, Final

import msgspec

from tensorkeep.errors import LimitError, PickleError
from tensorkeep.formats.pickles.limits import PickleLimits
from tensorkeep.formats.pickles.machine import OPCODES, Context, PickleCutError, run_pickle
from tensorkeep.formats.pickles.values import Payload
from tensorkeep.transport import ByteRange, ByteSource

MIN_PAYLOAD_NBYTES: Final = 2**16
"""Bytes from which a value is left out; Python's pickler writes values of this length between frames."""

_AHEAD_NBYTES: Final = (2**16, 2**24)
"""Bytes that are read at a time, at first and at most: as long as there is no value to jump over, ever more."""

_FAR_NBYTES: Final = 2**20
"""Bytes of a value from which jumping over it is cheaper than reading it: on a server, each jump is a request."""

_PROTOCOLS: Final = re.compile(rb"\x80[\x03-\x05]")
"""Earlier protocols have no bytes, and write arrays as text."""

_WIDTHS: Final = {"none": 0, "u1": 1, "u2": 2, "u4": 4, "i4": 4, "f8": 8}
_STOP: Final = ord(".")
_FRAME: Final = ord("\x95")
_BYTES: Final = frozenset(b"B\x8e\x96")
_BYTEARRAY: Final = ord("\x96")


def _codes(width: int) -> bytes:
    """Return the opcodes with arguments of so many bytes as a class of a regular expression; not STOP."""
    codes = (code for code, opcode in OPCODES.items() if _WIDTHS.get(opcode.argument) == width and code != _STOP)
    return b"[" + b"".join(b"\\x%02x" % code for code in codes) + b"]"


_pass_plain = re.compile(
    b"(?:" + b"|".join(b"%b.{%d}" % (_codes(width), width) for width in (0, 1, 2, 4, 8)) + b")*+", re.DOTALL
).match
_LENGTHS: Final = {
    code: int(opcode.argument[0]) for code, opcode in OPCODES.items() if opcode.argument.endswith("+bytes")
} | {_FRAME: 8}
_LINES: Final = {
    code: ("line", "two lines").index(opcode.argument) + 1
    for code, opcode in OPCODES.items()
    if opcode.argument in {"line", "two lines"}
}


class Outline(msgspec.Struct, frozen=True, eq=False):
    """A pickle without its long values.

    Attributes:
        data: Its other bytes.
        payloads: Position in these to the value that was left out there.
    """

    data: bytes
    payloads: dict[int, Payload]


def has_outline(source: ByteSource) -> bool:
    """Say whether a pickle may have values of bytes that are so long: by its size and its protocol."""
    if source.nbytes < MIN_PAYLOAD_NBYTES:
        return False
    return _PROTOCOLS.match(bytes(source.read(ByteRange(0, min(2, source.nbytes))))) is not None


def outline_of(source: ByteSource, limits: PickleLimits) -> Outline:
    """Read a pickle up to STOP, or as far as its opcodes can be read, without its long values of bytes."""
    return _Pass(source, limits).outline()


def run_outline(source: ByteSource, context: Context) -> Any:
    """Run the pickle that fills a source, and return its value; large arrays stay in the source."""
    outline = outline_of(source, context.limits)
    context.places = {}
    value, stop = run_pickle(outline.data, 0, context, outline.payloads)
    place_of = _places_in_file(outline)
    if place_of(stop) != source.nbytes:
        found = f"{source.nbytes - place_of(stop):,}"
        raise PickleError("bytes follow the end of the pickle", expected="none", found=found)
    if context.events is not None:
        context.events[:] = [
            msgspec.structs.replace(event, position=place_of(event.position)) for event in context.events
        ]
    return value


def _places_in_file(outline: Outline) -> Callable[[int], int]:
    """Return a function that gives the place in the file of a byte of the outline."""
    places = list(outline.payloads)
    stops = [
        place + nbytes for place, nbytes in zip(places, accumulate(map(len, outline.payloads.values())), strict=True)
    ]

    def in_file(position: int) -> int:
        n_before = bisect_right(places, position)
        return position if not n_before else position - places[n_before - 1] + stops[n_before - 1]

    return in_file


class _Pass:
    """One pass over a file: bytes are kept as it moves on, and long values are passed."""

    def __init__(self, source: ByteSource, limits: PickleLimits) -> None:
        self._source = source
        self._limits = limits
        self._kept: list[bytes] = []
        self._n_kept = 0
        self._payloads: dict[int, Payload] = {}
        self._data = b""
        self._start = 0  # of the data, in the file
        self._kept_until = 0  # in the data
        self._position = 0  # in the data
        self._ahead_nbytes = _AHEAD_NBYTES[0]

    def outline(self) -> Outline:
        """Pass all opcodes."""
        for _ in range(self._limits.max_opcodes):
            if self._position < len(self._data):
                plain = _pass_plain(self._data, self._position)
                self._position = self._position if plain is None else plain.end()
            if not self._pass_opcode():
                break
        self._keep()
        return Outline(b"".join(self._kept), self._payloads)

    def _pass_opcode(self) -> bool:
        """Pass one opcode; return whether another one may follow."""
        if not self._has(1):
            return False
        code = self._data[self._position]
        if code in _LENGTHS:
            return self._pass_value(code, _LENGTHS[code])
        if code in _LINES:
            return self._pass_lines(_LINES[code])
        opcode = OPCODES.get(code)
        is_passed = self._pass(1 + (_WIDTHS[opcode.argument] if opcode else 0))
        return is_passed and opcode is not None and code != _STOP

    def _pass_value(self, code: int, width: int) -> bool:
        """Pass an opcode and the value of so many bytes, or the frame, that follows its length."""
        if not self._pass(1 + width):
            return False
        nbytes = int.from_bytes(self._data[self._position - width : self._position], "little")
        if code not in _BYTES or nbytes < MIN_PAYLOAD_NBYTES:
            return self._pass(nbytes)
        start = self._start + self._position
        if start + nbytes > self._source.nbytes:
            raise PickleCutError(
                "a value extends beyond the end",
                expected=f"{nbytes:,} bytes at {start:,}",
                found=f"{self._source.nbytes - start:,}",
            )
        self._keep()
        span = ByteRange(start, start + nbytes)
        self._payloads[self._n_kept] = Payload(((self._source, span),), code == _BYTEARRAY)
        self._position = self._kept_until = self._position + nbytes
        if nbytes >= _FAR_NBYTES:
            self._ahead_nbytes = _AHEAD_NBYTES[0]
        return True

    def _pass_lines(self, n_lines: int) -> bool:
        """Pass an opcode and the lines that follow it."""
        nbytes = 1
        while n_lines:
            end = self._data.find(b"\n", self._position + nbytes)
            if end >= 0:
                nbytes = end + 1 - self._position
                n_lines -= 1
                continue
            nbytes = len(self._data) - self._position
            self._has(2 * nbytes)
            if len(self._data) - self._position == nbytes:
                return self._pass(nbytes + 1)
        return self._pass(nbytes)

    def _pass(self, nbytes: int) -> bool:
        """Pass bytes, or what is left of the file; return whether it has them."""
        is_there = self._has(nbytes)
        self._position = self._position + nbytes if is_there else len(self._data)
        return is_there

    def _has(self, nbytes: int) -> bool:
        """Read on until so many bytes after the position are held; return whether the file has them."""
        if len(self._data) - self._position >= nbytes:
            return True
        self._keep()
        n_left = self._source.nbytes - self._start - self._position
        self._refuse_more(self._n_kept + min(nbytes, n_left))
        self._start += self._position
        self._data = self._data[self._position :]
        self._position = self._kept_until = 0
        start = self._start + len(self._data)
        stop = self._start + min(max(nbytes, self._ahead_nbytes), n_left)
        if start < stop:
            self._data += bytes(self._source.read(ByteRange(start, stop)))
        self._ahead_nbytes = min(2 * self._ahead_nbytes, _AHEAD_NBYTES[1])
        return len(self._data) >= nbytes

    def _keep(self) -> None:
        """Keep the bytes that were passed."""
        self._kept.append(self._data[self._kept_until : self._position])  # no copy, if that is all of it
        self._n_kept += self._position - self._kept_until
        self._kept_until = self._position
        self._refuse_more(self._n_kept)

    def _refuse_more(self, nbytes: int) -> None:
        if nbytes > self._limits.max_nbytes:
            raise LimitError(
                "a pickle is too large",
                expected=f"at most {self._limits.max_nbytes:,} bytes beside arrays of {MIN_PAYLOAD_NBYTES:,} or more",
                found="more",
            )

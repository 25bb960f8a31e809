"""The numbers that protocols 0 and 1 write as text, read exactly as Python's readers read them. Pure.

Python has two readers. The one in C ends a number at a zero byte, reads INT by C's rules, so `010` is 8, and takes an
INT of two characters for a boolean, so `+1` is True. The one in Python allows spaces and underscores in a FLOAT. A
number that they read differently is refused. One that both refuse ends the pickle for every reader.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from tensorkeep.errors import PickleError
from tensorkeep.formats.pickles.machine._stack import BrokenPickleError

_SPACE = rb"[ \t-\r]*"
_SIGN = rb"[+-]?"
_DIGITS = rb"(?:0(?:_?0)*|[1-9](?:_?[0-9])*|0[xX](?:_?[0-9a-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+)"
_is_whole = re.compile(_SPACE + _SIGN + _DIGITS + _SPACE).fullmatch
_is_decimal = re.compile(_SPACE + _SIGN + rb"[0-9](?:_?[0-9])*" + _SPACE).fullmatch
_is_octal = re.compile(_SPACE + _SIGN + rb"0[0-7]+").fullmatch
_is_spaced = re.compile(rb"[ \t-\r_]").search
_BOOLEANS = {b"00": False, b"01": True}
_INFINITE = frozenset((float("inf"), float("-inf")))

Number = TypeVar("Number", int, float)


def int_number(line: bytes) -> int:
    """Return the argument of INT."""
    if line in _BOOLEANS:
        return _BOOLEANS[line]
    if line[:1] == b"\0" or (_is_octal(_before_zero(line)) and not _is_whole(line)):
        raise _ambiguous(line)
    number = _read(line, _is_whole, lambda text: int(text, 0))
    if len(line) == 2 and number in {0, 1} and not line[1:].isspace():
        raise _ambiguous(line)
    return number


def long_number(line: bytes) -> int:
    """Return the argument of LONG."""
    return _read(line.removesuffix(b"L"), _is_whole, lambda text: int(text, 0))


def memo_number(line: bytes) -> int:
    """Return the argument of GET or PUT."""
    return _read(line, _is_decimal, int)


def float_number(line: bytes) -> float:
    """Return the argument of FLOAT."""
    number = _read(line, _is_float, float)
    if _is_spaced(line) or (number in _INFINITE and b"inf" not in line.lower()):
        raise _ambiguous(line)
    return number


def _read(line: bytes, is_number: Callable[[bytes], object], convert: Callable[[bytes], Number]) -> Number:
    text = _before_zero(line)
    if not is_number(text):
        raise BrokenPickleError("not a number", found=f"{line!r:.100}")
    if text != line:
        raise _ambiguous(line)
    return convert(line)


def _is_float(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _before_zero(line: bytes) -> bytes:
    return line.partition(b"\0")[0]


def _ambiguous(line: bytes) -> PickleError:
    return PickleError("a number that readers read differently", found=f"{line!r:.100}")

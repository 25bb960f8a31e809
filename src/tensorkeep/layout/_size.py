"""Sizes as people write them, such as "5GB", converted to bytes. Pure and exact: no floating point is involved."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final, NoReturn

from tensorkeep.errors import UnsupportedError

_UNITS: Final = {
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", start=1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", start=1)},
}
_match = re.compile(
    r"\s* (?P<number> [0-9]{1,20} (?:\.[0-9]{0,20})? (?:e[+-]?[0-9]{1,2})? ) \s* (?P<unit> [kmgt]?i?b ) \s*",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
).fullmatch
_HINT: Final = "Write it as 5_000_000_000 (bytes), '5GB' (1000³ bytes each), '5GiB' (1024³ bytes each) or '500 MB'"


def parse_size(size: int | str) -> int:
    """Convert a size such as 5_000_000_000, "5GB" or "500 MiB" to bytes."""
    nbytes = _read(size) if isinstance(size, str) else size
    if not isinstance(nbytes, int) or isinstance(nbytes, bool):
        _refuse("not a size", size)
    if nbytes < 1:
        _refuse("a size must be at least one byte", size)
    return nbytes


def _read(text: str) -> int | None:
    """Return bytes, or None if the text is not a size."""
    found = _match(text)
    factor = _UNITS.get(found["unit"].lower()) if found else None
    return None if found is None or factor is None else int(Fraction(found["number"]) * factor)


def _refuse(message: str, size: object) -> NoReturn:
    raise UnsupportedError(message, expected="a size such as '5GB'", found=repr(size), hint=_HINT)

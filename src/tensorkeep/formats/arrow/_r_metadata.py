"""What R's arrow package saves with a table: attributes, as a text of R's own serialization. Pure.

Versions 4 to 16 give the text to R's `unserialize`, which also makes promises, functions and environments, and so
runs code (CVE-2024-52338). Vectors, lists and names are data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

R_KEY: Final = "r"
"""The key of the text."""

_FORMAT: Final = "A"
"""The first line of a serialization as text; R writes no other one here."""

_SYMBOL, _PAIRS, _CHARACTERS, _REFERENCE = 1, 2, 9, 255
_NOTHING: Final = 254
_LISTS: Final = frozenset({16, 19})
"""Vectors of strings, and lists: their elements are values."""

_VALUES: Final = {
    10: re.compile(r"-?[0-9]{1,10}|NA"),
    13: re.compile(r"-?[0-9]{1,10}|NA"),
    14: re.compile(r"-?[0-9.]{1,40}(?:e[+-][0-9]{1,3})?|NA|NaN|-?Inf"),
}
"""How the elements of logical, integer and real vectors are written, one in each line."""

_HAS_ATTRIBUTES, _HAS_TAG = 512, 1024
_ABSENT: Final = -1
_integer = re.compile(r"-?[0-9]{1,10}").fullmatch
_string = re.compile(r"""(?:[!-\[\]-~]|\\[ntvbrfa\\?'"]|\\[0-7]{3})*""").fullmatch
_character = re.compile(r"\\[0-7]{3}|\\.|.")


def is_plain_r(text: str) -> bool:
    """Say whether R makes nothing but data of a text."""
    try:
        return _is_plain(iter(text.split("\n")))
    except (StopIteration, ValueError):
        return False


def _is_plain(lines: Iterator[str]) -> bool:
    if next(lines) != _FORMAT:
        return False
    version, _, _ = (_number(lines) for _ in range(3))
    if version == 3:
        _pass_string(lines)
    n_values = 1
    while n_values:
        n_values += _n_in_value(lines) - 1
    return list(lines) == [""]


def _n_in_value(lines: Iterator[str]) -> int:
    """Pass over a value as far as it contains no others, and return how many these are."""
    flags = _number(lines)
    kind, has_attributes, has_tag = flags & 255, bool(flags & _HAS_ATTRIBUTES), bool(flags & _HAS_TAG)
    if kind == _PAIRS:
        return has_attributes + has_tag + 2
    if kind in _VALUES:
        for _ in range(_length(lines)):
            if not _VALUES[kind].fullmatch(next(lines)):
                raise ValueError
        return int(has_attributes)
    if kind in _LISTS:
        return _length(lines) + has_attributes
    if has_attributes:
        raise ValueError
    if kind == _CHARACTERS:
        _pass_string(lines)
    elif kind == _REFERENCE and not flags >> 8:
        _number(lines)
    elif kind not in {_SYMBOL, _NOTHING, _REFERENCE}:
        raise ValueError
    return int(kind == _SYMBOL)


def _pass_string(lines: Iterator[str]) -> None:
    length = _number(lines)
    if length == _ABSENT:
        return
    text = next(lines)
    if not _string(text) or len(_character.findall(text)) != length:
        raise ValueError


def _length(lines: Iterator[str]) -> int:
    length = _number(lines)
    if length < 0:
        raise ValueError
    return length


def _number(lines: Iterator[str]) -> int:
    line = next(lines)
    if not _integer(line):
        raise ValueError
    return int(line)

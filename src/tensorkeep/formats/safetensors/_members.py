"""A header read member by member: exact where decoding it at once is not. Pure.

Each value is decoded from its own text. So unwanted values are not read, duplicate keys are found at once, and
reading stops at the first mistake: a hostile header of 100 MB never becomes 100 MB of objects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn

import msgspec

from tensorkeep.entries import TensorEntry
from tensorkeep.errors import HeaderError

METADATA_KEY: Final = "__metadata__"
"""The only key of a header that does not name a tensor."""

_FIELDS: Final = {METADATA_KEY, *TensorEntry.__struct_fields__}
_LEADING: Final = '{"__metadata__":'
_white = re.compile(r"[ \t\r\n]*").match

_decode_entry = msgspec.json.Decoder(TensorEntry).decode
_decode_metadata = msgspec.json.Decoder(dict[str, str] | None).decode


def _refuse_duplicate(key: str) -> NoReturn:
    kind = "field" if key in _FIELDS else "key"
    raise HeaderError(f"invalid JSON in header: duplicate {kind} `{key}`")


def _refuse_equal_keys(pairs: list[tuple[str, Any]]) -> None:
    """Refuse duplicate keys in an object, without keeping the object."""
    if len(pairs) < 2 or len({key for key, _ in pairs}) == len(pairs):
        return
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            _refuse_duplicate(key)
        seen.add(key)


_scan = json.JSONDecoder(object_pairs_hook=_refuse_equal_keys, parse_int=len, parse_float=len).raw_decode
"""Finds the end of a value; numbers, which may have a million digits, are not converted."""


def take_leading_metadata(source: str) -> tuple[str, dict[str, str] | None]:
    """Cut off metadata that comes first, without white space, as every known writer puts it."""
    if not source.startswith(_LEADING) or not source.startswith(("{", "n"), len(_LEADING)):
        return source, None
    try:
        _, stop = _scan(source, len(_LEADING))
        metadata = _decode_metadata(source[len(_LEADING) : stop])
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return source, None
    if source.startswith(',"', stop):
        return "{" + source[stop + 1 :], metadata
    if source.startswith("}", stop):
        return "{" + source[stop:], metadata
    return source, None


def read_members(source: str) -> tuple[dict[str, TensorEntry], dict[str, str] | None]:
    """Read a header with members in any order and any white space."""
    entries: dict[str, TensorEntry] = {}
    metadata: dict[str, str] | None = None
    seen_metadata = False
    try:
        for name, value in _members(source):
            if name in entries or (name == METADATA_KEY and seen_metadata):
                _refuse_duplicate(name)
            if name == METADATA_KEY:
                metadata = _metadata_of(value)
                seen_metadata = True
            else:
                entries[name] = _decode_entry(value)
    except HeaderError:
        raise
    except RecursionError:
        raise HeaderError("invalid JSON in header: recursion limit exceeded") from None
    except ValueError as error:  # from json or msgspec
        raise HeaderError(f"invalid JSON in header: {error}") from None
    return entries, metadata


def _metadata_of(value: str) -> dict[str, str] | None:
    if not value.startswith(("{", "n")):  # before a long list is decoded into objects
        raise HeaderError(f"invalid JSON in header: metadata must be an object, not {value[:20]}")
    metadata: dict[str, str] | None = _decode_metadata(value)
    return metadata


def _members(source: str) -> Iterator[tuple[str, str]]:
    """Yield each key of the outer object, and the text of its value."""
    place = _expect("{", source, 0)
    closed = source[place : place + 1] == "}"
    while not closed:
        name, place = _scan(source, place)
        if not isinstance(name, str):
            raise HeaderError(f"invalid JSON in header: key must be a string at character {place}")
        name.encode()  # a lone surrogate is refused
        begin = _expect(":", source, _skip_white(source, place))
        _, stop = _scan(source, begin)
        yield name, source[begin:stop]
        place = _skip_white(source, stop)
        closed = source[place : place + 1] == "}"
        if not closed:
            place = _expect(",", source, place)
    rest = _skip_white(source, place + 1)
    if rest != len(source):
        raise HeaderError(f"invalid JSON in header: trailing characters at character {rest}")


def _expect(char: str, source: str, place: int) -> int:
    """Check for a character; return the position after it and any white space."""
    found = source[place : place + 1]
    if found != char:
        raise HeaderError(f"invalid JSON in header: expected `{char}` at character {place}, found {found!r}")
    return _skip_white(source, place + 1)


def _skip_white(source: str, place: int) -> int:
    found = _white(source, place)
    return found.end() if found else place

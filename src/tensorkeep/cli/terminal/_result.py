"""What a command reports, for people and for programs. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from tensorkeep.cli.terminal._columns import Line


class Result(Protocol):
    """What a command found or did."""

    def lines(self, width: int | None) -> Iterable[Line]:
        """Return lines for people; `width` is that of the terminal in characters, None elsewhere."""
        ...

    def members(self) -> Mapping[str, object]:
        """Return the members of a JSON object; an iterator becomes an array with one element per line."""
        ...


def json_lines(members: Mapping[str, object]) -> Iterator[str]:
    """Write an object as JSON in ASCII, one member per line, so that a terminal obeys nothing in it."""
    yield "{"
    for place, (key, value) in enumerate(members.items(), start=1):
        end = "," if place < len(members) else ""
        if isinstance(value, Iterator):
            yield from _array(key, value, end=end)
        else:
            yield f"  {_encoded(key)}: {_encoded(value)}{end}"
    yield "}"


def _array(key: str, elements: Iterator[object], *, end: str) -> Iterator[str]:
    yield f"  {_encoded(key)}: ["
    pending = None
    for element in elements:
        if pending is not None:
            yield pending + ","
        pending = f"    {_encoded(element)}"
    if pending is not None:
        yield pending
    yield f"  ]{end}"


def _encoded(value: object) -> str:
    return json.dumps(value).replace("\x7f", r"\u007f")  # the one control character that json does not escape

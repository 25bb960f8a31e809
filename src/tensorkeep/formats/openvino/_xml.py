"""The elements of an XML file, one after another. Pure.

Only elements, attributes, comments and space between them are read, as OpenVINO writes them. A document type, with
which entities come, is refused, and so is everything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tensorkeep.errors import FormatError, LimitError
from tensorkeep.limits import MAX_XML_DEPTH, MAX_XML_ELEMENTS

_NAME: Final = r"[A-Za-z_][\w.:-]*+"
_ATTRIBUTE: Final = rf"\s++{_NAME}\s*+=\s*+(?:\"[^\"<]*+\"|'[^'<]*+')"
_next = re.compile(
    rf"<(?:/(?P<closed>{_NAME})\s*+>"
    rf"|(?P<opened>{_NAME})(?P<attributes>(?:{_ATTRIBUTE})*+)\s*+(?P<empty>/?)>"
    r"|!--(?:[^-]|-(?!-))*+-->"
    r"|\?xml\s[^<>?]*+\?>)"
).match
_attributes = re.compile(rf"({_NAME})\s*+=\s*+(?:\"([^\"]*+)\"|'([^']*+)')").findall
_skip_text = re.compile(r"[^<]*+").match
_references = re.compile(r"&(?:#(\d{1,7})|#x([0-9A-Fa-f]{1,6})|(lt|gt|amp|quot|apos));")
_NAMED: Final = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}

Attributes = dict[str, str]


def elements(text: str) -> Iterator[tuple[str, Attributes | None]]:
    """Yield the name of each element with its attributes where it begins, and with None where it ends."""
    path: list[str] = []
    position, n_elements, n_roots = 0, 0, 0
    while True:
        position = _end_of_text(text, position)
        if position == len(text):
            break
        found = _next(text, position)
        if found is None:
            raise FormatError(
                "the XML has something that OpenVINO does not write",
                expected="elements with attributes",
                found=f"{text[position : position + 40]!r} at character {position:,}",
            )
        position = found.end()
        closed, opened = found["closed"], found["opened"]
        if opened:
            n_elements += 1
            n_roots += not path
            _check_bounds(n_elements, len(path), n_roots)
            yield opened, _attributes_of(found["attributes"])
            path.append(opened)
        if closed or (opened and found["empty"]):
            if not path or (closed and path[-1] != closed):
                raise FormatError("an element of the XML ends that did not begin", found=repr(closed)[:100])
            yield path.pop(), None
    if path or not n_roots:
        raise FormatError("the XML ends within an element", hint="If it was cut off, get it again")


def _end_of_text(text: str, position: int) -> int:
    skipped = _skip_text(text, position)
    return skipped.end() if skipped else position


def _check_bounds(n_elements: int, depth: int, n_roots: int) -> None:
    if n_elements > MAX_XML_ELEMENTS or depth >= MAX_XML_DEPTH:
        raise LimitError(
            "the XML has too many elements, or too many within each other",
            expected=f"at most {MAX_XML_ELEMENTS:,}, at most {MAX_XML_DEPTH} deep",
        )
    if n_roots > 1:
        raise FormatError("the XML has a second root")


def _attributes_of(text: str) -> Attributes:
    pairs = [(name, _plain(one or other)) for name, one, other in _attributes(text)]
    found = dict(pairs)
    if len(found) < len(pairs):
        raise FormatError("an element of the XML has an attribute twice", found=f"{text[:100]!r}")
    return found


def _plain(value: str) -> str:
    """Replace references to characters; others are left, since no entities are defined."""
    return _references.sub(_character, value) if "&" in value else value


def _character(found: re.Match[str]) -> str:
    decimal, hexadecimal, name = found.groups()
    if name:
        return _NAMED[name]
    number = int(decimal) if decimal else int(hexadecimal, 16)
    if number > 0x10FFFF or 0xD800 <= number < 0xE000:
        raise FormatError("the XML names a character that does not exist", found=found[0])
    return chr(number)

"""JSON documents that keep what `dict` cannot: duplicate keys, the spelling of numbers, the order of everything.

They are random valid safetensors headers, written with random whitespace and escapes.
"""

from __future__ import annotations

import struct
from random import Random
from typing import Any, NamedTuple

from tensorkeep.dtypes import DTYPES

__all__ = ["NAMES", "Pairs", "Sample", "Token", "file_of", "short_text", "spell", "valid_document", "valid_sample"]


class Pairs(list[tuple[str, Any]]):
    """A JSON object: keys in order, repeated or not."""


class Token(str):
    """Text copied verbatim into the document, such as the number `1e0`."""

    __slots__ = ()


class Sample(NamedTuple):
    """A file: its bytes, and how they were made."""

    file: bytes
    made_by: str


_LETTERS = 'ab.:,{}[]"\\/\n\t\x00\x1f\x7f é\u2028\ufeff\U0001f600'
NAMES = ("a", "b", "w", "layer.0.weight", "", "__metadata__", "__metadata", '"__metadata__":', "dtype", "a:b")
_SPACES = ("", "", "", " ", "\n", "\t", "\r", "  \n ")


def valid_document(rng: Random) -> tuple[Pairs, int]:
    """Make a document that every reader accepts.

    Returns:
        The document, and the bytes of data that it describes.
    """
    entries: list[tuple[str, Any]] = []
    end = 0
    for _ in range(rng.choice((0, 1, 1, 2, 3, 5))):
        dtype = rng.choice(DTYPES)
        shape = [rng.choice((0, 1, 1, 2, 3)) for _ in range(rng.randrange(4))]
        n_bits = dtype.bits
        for extent in shape:
            n_bits *= extent
        if n_bits % 8:
            shape.append(8)
            n_bits *= 8
        fields = [
            ("dtype", dtype.name),
            ("shape", [Token(extent) for extent in shape]),
            ("data_offsets", [Token(end), Token(end + n_bits // 8)]),
        ]
        end += n_bits // 8
        if rng.random() < 0.2:
            rng.shuffle(fields)
        entries.append((_new_name(rng, entries), Pairs(fields)))
    if rng.random() < 0.3:
        rng.shuffle(entries)
    if rng.random() < 0.4:
        text = [(f"{place}{short_text(rng)}", short_text(rng)) for place in range(rng.randrange(4))]
        entries.insert(rng.randrange(len(entries) + 1), ("__metadata__", Pairs(text) if text else None))
    return Pairs(entries), end


def _new_name(rng: Random, entries: list[tuple[str, Any]]) -> str:
    taken = {"__metadata__", *(name for name, _ in entries)}
    name = rng.choice(NAMES)
    while name in taken:
        name = name.strip("_") + short_text(rng) + str(len(taken))
    return name


def short_text(rng: Random) -> str:
    """Return up to three characters that JSON or its readers treat specially."""
    return "".join(rng.choice(_LETTERS) for _ in range(rng.randrange(4)))


def spell(rng: Random, value: Any, *, plain: bool = False) -> str:
    """Write a document as JSON text, with random whitespace and escapes unless `plain`."""

    def space() -> str:
        return rng.choice(_SPACES) if not plain and rng.random() < 0.1 else ""

    if isinstance(value, Pairs):
        members = ",".join(
            f"{space()}{_quoted(rng, key, plain)}{space()}:{space()}{spell(rng, item, plain=plain)}{space()}"
            for key, item in value
        )
        return "{" + members + "}"
    if isinstance(value, list):
        return "[" + ",".join(space() + spell(rng, item, plain=plain) + space() for item in value) + "]"
    if isinstance(value, Token):
        return str(value)
    return (
        _quoted(rng, value, plain) if isinstance(value, str) else {None: "null", True: "true", False: "false"}[value]
    )


_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}


def _quoted(rng: Random, text: str, plain: bool) -> str:
    escape_all = not plain and rng.random() < 0.05
    return '"' + "".join(_escaped(char, escape_all and rng.random() < 0.5) for char in text) + '"'


def _escaped(char: str, needlessly: bool) -> str:
    if char in _SHORT_ESCAPES and not needlessly:
        return _SHORT_ESCAPES[char]
    if char < " " or needlessly:
        units = struct.unpack(f"<{len(char.encode('utf-16-le')) // 2}H", char.encode("utf-16-le"))
        return "".join(f"\\u{unit:04x}" for unit in units)
    return char


def file_of(header: bytes, data_nbytes: int) -> bytes:
    """Assemble length, header and data (zeros)."""
    return struct.pack("<Q", len(header)) + header + bytes(data_nbytes)


def valid_sample(rng: Random) -> Sample:
    """Make a file that every reader accepts."""
    document, data_nbytes = valid_document(rng)
    plain = rng.random() < 0.5
    text = spell(rng, document, plain=plain) + " " * rng.choice((0, 0, 1, 7))
    return Sample(file_of(text.encode(), data_nbytes), "none")

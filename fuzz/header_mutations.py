"""Safetensors headers, broken at random: the input of the fuzzer and of the property tests.

A header is mutated as a document (offsets swapped, keys repeated, values of another kind), written out, then mutated
as bytes and as a file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import Any

from fuzz.header_documents import NAMES, Pairs, Sample, Token, file_of, short_text, spell, valid_document
from tensorkeep.dtypes import DTYPES

__all__ = ["MUTATIONS", "mutated"]

_NUMBERS = (
    *("0", "1", "2", "8", "-0", "-1", "-8", "1.0", "0.0", "1e0", "1E400", "01", "+1", "0x1", ".5", "1.", "NaN"),
    *("Infinity", "-Infinity", "4294967296", "9223372036854775807", "9223372036854775808", "18446744073709551615"),
    *("18446744073709551616", "-9223372036854775809", "9" * 50, "9" * 4300, "9" * 4301),
)
_DTYPES = (*(dtype.name for dtype in DTYPES), "f32", "F128", "", "F32 ", "BOOL\x00")
_TOKENS = (
    *(
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b",",
        b"\x00",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"\xc2\xa0",
    ),
    *(
        b"null",
        b"true",
        b"-",
        b"1e9",
        b'\\ud800"',
        b"\\u005f",
        b'"__metadata__":',
        b'"__metadata__":{}',
        b'"a":{}',
        b"//",
    ),
)


def _is_whole(value: Any) -> bool:
    """Whether this is still an entry with all its fields after other mutations."""
    if not isinstance(value, Pairs):
        return False
    shape, offsets = _get(value, "shape"), _get(value, "data_offsets")
    is_plain = isinstance(shape, list) and isinstance(offsets, list) and len(offsets) == 2
    return is_plain and all(str(place).isdecimal() and len(str(place)) < 20 for place in offsets)


def _an_entry(rng: Random, document: Pairs) -> Pairs:
    entries: list[Pairs] = [value for key, value in document if key != "__metadata__" and _is_whole(value)]
    if entries:
        return rng.choice(entries)
    fields = Pairs([("dtype", "U8"), ("shape", [Token(0)]), ("data_offsets", [Token(0), Token(0)])])
    document.append((f"new{len(document)}", fields))
    return fields


def _set(fields: Pairs, key: str, value: Any) -> None:
    for place, (name, _) in enumerate(fields):
        if name == key:
            fields[place] = (key, value)


def _get(fields: Pairs, key: str) -> Any:
    return next((value for name, value in fields if name == key), None)


def _anything(rng: Random, depth: int = 0) -> Any:
    kind = rng.randrange(7 if depth < 3 else 5)
    if kind < 2:
        return Token(rng.choice(_NUMBERS))
    if kind < 4:
        return rng.choice((None, True, False, "", "x", "U8"))
    if kind == 4:
        return short_text(rng)
    if kind == 5:
        return [_anything(rng, depth + 1) for _ in range(rng.randrange(4))]
    return Pairs((rng.choice(NAMES), _anything(rng, depth + 1)) for _ in range(rng.randrange(4)))


def swap_offsets(rng: Random, document: Pairs) -> None:
    one, other = _an_entry(rng, document), _an_entry(rng, document)
    first, second = _get(one, "data_offsets"), _get(other, "data_offsets")
    _set(one, "data_offsets", second[::-1] if one is other else second)
    _set(other, "data_offsets", first[::-1] if one is other else first)


def shift_offsets(rng: Random, document: Pairs) -> None:
    fields = _an_entry(rng, document)
    begin, end = (int(place) for place in _get(fields, "data_offsets"))
    by, to = rng.choice(((0, 1), (1, 1), (1, 0), (-1, 0), (0, -1), (-1, -1)))
    _set(fields, "data_offsets", [Token(begin + by), Token(end + to)])


def change_dtype(rng: Random, document: Pairs) -> None:
    _set(_an_entry(rng, document), "dtype", rng.choice(_DTYPES))


def change_shape(rng: Random, document: Pairs) -> None:
    fields = _an_entry(rng, document)
    shape = list(_get(fields, "shape"))
    shape.insert(rng.randrange(len(shape) + 1), Token(rng.choice(("0", "1", "2", rng.choice(_NUMBERS)))))
    _set(fields, "shape", shape)


def lengthen_shape(rng: Random, document: Pairs) -> None:
    fields = _an_entry(rng, document)
    _set(fields, "shape", [*_get(fields, "shape"), *[Token(1)] * rng.choice((64, 1_000, 1_020, 1_025))])


def change_number(rng: Random, document: Pairs) -> None:
    numbers = _get(_an_entry(rng, document), rng.choice(("shape", "data_offsets")))
    if numbers:
        numbers[rng.randrange(len(numbers))] = Token(rng.choice(_NUMBERS))


def repeat_name(rng: Random, document: Pairs) -> None:
    _an_entry(rng, document)
    key, value = rng.choice(document)
    document.insert(rng.randrange(len(document) + 1), (key, rng.choice((value, _anything(rng)))))


def repeat_field(rng: Random, document: Pairs) -> None:
    fields = _an_entry(rng, document)
    key, value = rng.choice(fields)
    fields.insert(rng.randrange(len(fields) + 1), (key, rng.choice((value, _anything(rng)))))


def drop_field(rng: Random, document: Pairs) -> None:
    fields = _an_entry(rng, document)
    fields.pop(rng.randrange(len(fields)))


def add_field(rng: Random, document: Pairs) -> None:
    value = _anything(rng)
    if rng.random() < 0.1:
        depth = rng.choice((60, 120, 124, 130, 200))
        value = Token("[" * depth + "]" * depth)
    fields = _an_entry(rng, document)
    fields.insert(rng.randrange(len(fields) + 1), (rng.choice(NAMES), value))


def change_kind(rng: Random, document: Pairs) -> None:
    target = rng.choice((document, _an_entry(rng, document)))
    place = rng.randrange(len(target))
    target[place] = (target[place][0], _anything(rng))


def as_list(rng: Random, document: Pairs) -> None:
    _an_entry(rng, document)
    place = rng.randrange(len(document))
    key, value = document[place]
    if isinstance(value, Pairs):
        document[place] = (key, [item for _, item in value])


def dtype_as_object(rng: Random, document: Pairs) -> None:
    fields = _an_entry(rng, document)
    _set(fields, "dtype", Pairs([(str(_get(fields, "dtype")), rng.choice((None, None, Token("1"))))]))


def add_metadata(rng: Random, document: Pairs) -> None:
    text = Pairs(
        (rng.choice(NAMES), rng.choice((short_text(rng), rng.choice(NAMES)))) for _ in range(rng.randrange(3))
    )
    value = rng.choice((text, text, None, _anything(rng)))
    document.insert(rng.randrange(len(document) + 1), ("__metadata__", value))


def change_metadata(rng: Random, document: Pairs) -> None:
    for place, (key, value) in enumerate(document):
        if key == "__metadata__" and isinstance(value, Pairs) and value:
            value[rng.randrange(len(value))] = (rng.choice(NAMES), rng.choice((short_text(rng), _anything(rng))))
            return
        if key == "__metadata__":
            document[place] = (key, _anything(rng))
            return
    add_metadata(rng, document)


def reorder(rng: Random, document: Pairs) -> None:
    rng.shuffle(document)


DOCUMENT_MUTATIONS: tuple[Callable[[Random, Pairs], None], ...] = (
    *(
        swap_offsets,
        shift_offsets,
        change_dtype,
        change_shape,
        lengthen_shape,
        change_number,
        repeat_name,
        repeat_field,
        drop_field,
    ),
    *(add_field, change_kind, as_list, dtype_as_object, add_metadata, change_metadata, reorder),
)


def flip_bits(rng: Random, text: bytearray) -> None:
    for _ in range(rng.choice((1, 1, 2, 5))):
        if text:
            text[rng.randrange(len(text))] ^= 1 << rng.randrange(8)


def change_byte(rng: Random, text: bytearray) -> None:
    if text:
        text[rng.randrange(len(text))] = rng.randrange(256)


def insert_token(rng: Random, text: bytearray) -> None:
    at = rng.randrange(len(text) + 1)
    text[at:at] = rng.choice(_TOKENS)


def delete_bytes(rng: Random, text: bytearray) -> None:
    at = rng.randrange(len(text) + 1)
    del text[at : at + rng.choice((1, 1, 2, 10))]


def repeat_bytes(rng: Random, text: bytearray) -> None:
    at = rng.randrange(len(text) + 1)
    text[at:at] = text[at : at + rng.choice((1, 5, 60))]


def escape_byte(rng: Random, text: bytearray) -> None:
    """Replace one plain character by its escape, anywhere."""
    at = rng.randrange(len(text) + 1)
    if at < len(text) and chr(text[at]).isidentifier() and text[at] < 0x80:
        text[at : at + 1] = f"\\u{text[at]:04x}".encode()


BYTE_MUTATIONS: tuple[Callable[[Random, bytearray], None], ...] = (
    *(flip_bits, change_byte, insert_token, delete_bytes, repeat_bytes, escape_byte),
)


def change_length(rng: Random, file: bytearray) -> None:
    length = int.from_bytes(file[:8], "little")
    other = rng.choice((length - 1, length + 1, 0, 1, 2**63, 2**64 - 1, 100_000_001, rng.randrange(2 * length + 2)))
    file[:8] = struct.pack("<Q", min(max(0, other), 2**64 - 1))


def cut_off(rng: Random, file: bytearray) -> None:
    del file[rng.randrange(len(file) + 1) :]


def append_data(rng: Random, file: bytearray) -> None:
    file += bytes(rng.choice((1, 1, 2, 8)))


FILE_MUTATIONS: tuple[Callable[[Random, bytearray], None], ...] = (change_length, cut_off, append_data)

MUTATIONS = (*DOCUMENT_MUTATIONS, *BYTE_MUTATIONS, *FILE_MUTATIONS)


def mutated(rng: Random) -> Sample:
    """Make a valid file and mutate it one to three times, as a document, as text, or as a file."""
    document, data_nbytes = valid_document(rng)
    chosen = sorted((rng.choice(MUTATIONS) for _ in range(rng.choice((1, 1, 1, 2, 3)))), key=MUTATIONS.index)
    for mutation in chosen:
        if mutation in DOCUMENT_MUTATIONS:
            mutation(rng, document)
    text = bytearray(spell(rng, document, plain=rng.random() < 0.5), "utf-8", "surrogatepass")
    for mutation in chosen:
        if mutation in BYTE_MUTATIONS:
            mutation(rng, text)
    file = bytearray(file_of(bytes(text), data_nbytes))
    for mutation in chosen:
        if mutation in FILE_MUTATIONS:
            mutation(rng, file)
    return Sample(bytes(file), chosen[0].__name__)

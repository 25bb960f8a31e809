"""A corpus of bad files, one for each rule of the format, and what a reader must say of it.

The files are frozen: they are never changed, only added to. `words` are the reference's own (safetensors 0.8.0),
since people search for them; a test asks the reference too, so that this table cannot be wrong about it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

__all__ = ["ACCEPTED", "REFUSED", "Case"]


class Case(NamedTuple):
    """One file.

    Attributes:
        rule: The rule that it breaks, or keeps in an unusual way.
        file: Its bytes.
        words: What a refusal begins with, or "" for a file that is accepted.
        differs: Whether the verdict of the reference is the other one; `header_verdicts` has the reasons.
    """

    rule: str
    file: bytes
    words: str = ""
    differs: bool = False


BYTE = '{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
JSON = "invalid JSON in header"
UNCOVERED = "incomplete metadata, file not fully covered"
WRONG_SIZE = "invalid shape, data type, or offset for tensor"
OVERFLOW = "overflow computing buffer size from shape and/or element type"


def of(header: str | bytes, data_nbytes: int = 0, length: int | None = None) -> bytes:
    """Put a file together; its data are zeros."""
    text = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(text) if length is None else length) + text + bytes(data_nbytes)


def one(dtype: str = '"U8"', shape: str = "[1]", offsets: str = "[0,1]", name: str = '"a"', more: str = "") -> str:
    """Write a header of one tensor."""
    return f'{{{name}:{{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}{more}}}}}'


REFUSED = (
    Case("a file has a length field", b"", "header too small"),
    Case("a length field has 8 bytes", b"1234567", "header too small"),
    Case("a header has text", of(""), JSON),
    Case("a header has at most 100,000,000 bytes", of("{}", length=100_000_001), "header too large"),
    Case("a length is not taken modulo 2^63", of("{}", length=2**64 - 1), "header too large"),
    Case("a header ends inside the file", of("{}", length=50), "invalid header length"),
    Case("a header is UTF-8", of(b'{"\xff":1}'), "invalid UTF-8 in header"),
    Case("a header is UTF-8 without surrogates", of(b'{"\xed\xa0\x80":1}'), "invalid UTF-8 in header"),
    Case("a header is UTF-8 in its shortest form", of(b'{"\xc0\xaf":1}'), "invalid UTF-8 in header"),
    Case("a header has no byte order mark", of(b"\xef\xbb\xbf{}"), JSON),
    Case("a header is an object", of("[]"), JSON),
    Case("a header is not a number", of("1"), JSON),
    Case("a header is complete JSON", of('{"a":'), JSON),
    Case("a header is valid JSON", of('{"a":}'), JSON),
    Case("a header has no comma after the last member", of('{"__metadata__":{},}'), JSON),
    Case("a header has no comments", of("{}// x"), JSON),
    Case("nothing but white space follows the object", of("{}x"), JSON),
    Case("NUL is no white space", of("{}\0"), JSON),
    Case("a form feed is no white space", of("{\f}"), JSON),
    Case("a no-break space is no white space", of("{\u00a0}"), JSON),
    Case("strings have no raw control characters", of('{"a\nb":' + BYTE + "}", 1), JSON),
    Case("strings have no lone surrogates", of(one(name='"\\ud800"'), 1), JSON),
    Case("strings have no unknown escapes", of(one(name='"\\x41"'), 1), JSON),
    Case("NaN is no JSON", of('{"a":NaN}'), JSON),
    Case("NaN is no JSON, read or not", of(one(more=',"x":NaN'), 1), JSON),
    Case("lone surrogates are refused in fields that nobody reads", of(one(more=',"x":"\\ud800"'), 1), JSON),
    Case("nesting ends somewhere", of('{"a":' + "[" * 100_000 + "]" * 100_000 + "}"), JSON),
    Case("nesting ends somewhere, read or not", of(one(more=',"x":' + "[" * 100_000 + "]" * 100_000), 1), JSON),
    Case("an entry is an object", of('{"a":null}'), JSON),
    Case("an entry is not text", of('{"a":"b"}'), JSON),
    Case("an entry has a dtype", of('{"a":{"shape":[1],"data_offsets":[0,1]}}', 1), JSON),
    Case("an entry has a shape", of('{"a":{"dtype":"U8","data_offsets":[0,1]}}', 1), JSON),
    Case("an entry has data_offsets", of('{"a":{"dtype":"U8","shape":[1]}}', 1), JSON),
    Case("a field stands once in an entry", of(one(more=',"dtype":"U8"'), 1), JSON),
    Case("a dtype is text", of(one(dtype="3"), 1), JSON),
    Case("a shape is a list", of(one(shape="null"), 1), JSON),
    Case("an extent is not negative", of(one(shape="[-1]"), 1), JSON),
    Case("two negative extents do not make a right", of(one(shape="[-1,-1]"), 1), JSON),
    Case("an extent is no float", of(one(shape="[1.0]"), 1), JSON),
    Case("an extent has no exponent", of(one(shape="[1e0]"), 1), JSON),
    Case("an extent is no text", of(one(shape='["1"]'), 1), JSON),
    Case("an extent is no truth value", of(one(shape="[true]"), 1), JSON),
    Case("an extent has no leading zero", of(one(shape="[01]"), 1), JSON),
    Case("there are two data_offsets, not three", of(one(offsets="[0,1,2]"), 1), JSON),
    Case("there are two data_offsets, not one", of(one(offsets="[0]"), 1), JSON),
    Case("an offset is not negative", of(one(offsets="[-1,0]"), 1), JSON),
    Case("an extent has 64 bits", of(one(shape="[0,18446744073709551616]", offsets="[0,0]")), JSON),
    Case("a count of elements has 64 bits", of(one(shape="[1099511627776,1099511627776]"), 1), OVERFLOW),
    Case("a count of bits has 64 bits", of(one('"F32"', "[4611686018427387904]"), 1), OVERFLOW),
    Case(
        "a zero does not hide an overflow before it",
        of(one(shape="[1099511627776,1099511627776,0]", offsets="[0,0]")),
        OVERFLOW,
    ),
    Case("offsets do not run backwards", of(one(offsets="[1,0]"), 1), "invalid offset for tensor `a`"),
    Case("the first tensor starts at 0", of(one(offsets="[1,2]"), 2), "invalid offset for tensor `a`"),
    Case(
        "tensors do not overlap",
        of(
            '{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}',
            3,
        ),
        "invalid offset for tensor `b`",
    ),
    Case(
        "there are no holes between tensors",
        of('{"a":' + BYTE + ',"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}', 3),
        "invalid offset for tensor `b`",
    ),
    Case(
        "a tensor of no bytes lies at the end of another, not inside",
        of(
            '{"b":{"dtype":"U8","shape":[0],"data_offsets":[1,1]},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}',
            2,
        ),
        "invalid offset for tensor `b`",
    ),
    Case("bytes are as many as the shape says", of(one('"F32"'), 1), WRONG_SIZE),
    Case("no elements have no bytes", of(one(shape="[0]"), 1), WRONG_SIZE),
    Case(
        "F4 elements fill whole bytes", of(one('"F4"', "[3]", "[0,2]"), 2), "The slice is slicing for subbytes dtypes"
    ),
    Case(
        "F6 elements fill whole bytes",
        of(one('"F6_E2M3"', "[2]", "[0,2]"), 2),
        "The slice is slicing for subbytes dtypes",
    ),
    Case("the data are not short", of(one(shape="[4]", offsets="[0,4]"), 3), UNCOVERED),
    Case("nothing follows the data", of(one(shape="[4]", offsets="[0,4]"), 5), UNCOVERED),
    Case("nothing follows a header without tensors", of("{}", 1), UNCOVERED),
    Case("metadata is text by key, not numbers", of('{"__metadata__":{"a":1}}'), JSON),
    Case("metadata is text by key, not null", of('{"__metadata__":{"a":null}}'), JSON),
    Case("metadata is no list", of('{"__metadata__":[]}'), JSON),
    Case("metadata is no text", of('{"__metadata__":"x"}'), JSON),
    Case("metadata is no tensor", of('{"__metadata__":' + BYTE + "}", 1), JSON),
    Case("metadata is no tensor, however it is spelled", of('{"\\u005f_metadata__":' + BYTE + "}"), JSON),
    Case("metadata stands once", of('{"__metadata__":{"a":"1"},"__metadata__":{"b":"2"}}'), JSON),
    Case("metadata stands once, however it is spelled", of('{"__metadata__":{},"\\u005f_metadata__":{}}'), JSON),
    Case("a name stands once", of('{"a":' + BYTE + ',"a":' + BYTE + "}", 1), f"{JSON}: duplicate key", differs=True),
    Case(
        "a name stands once, however it is spelled",
        of('{"a":' + BYTE + ',"\\u0061":' + BYTE + "}", 1),
        JSON,
        differs=True,
    ),
    Case(
        "a metadata key stands once", of('{"__metadata__":{"a":"1","a":"2"}}'), f"{JSON}: duplicate key", differs=True
    ),
    Case("an entry is no list", of('{"a":["U8",[1],[0,1]]}', 1), JSON, differs=True),
    Case("a dtype is no object", of(one(dtype='{"U8":null}'), 1), JSON, differs=True),
    Case("a shape has at most 1,024 dimensions", of(one(shape=str([1] * 1025)), 1), JSON, differs=True),
    Case(
        "an extent is at most 2^63 - 1, elements or none",
        of(one(shape="[18446744073709551615,0]", offsets="[0,0]")),
        JSON,
        differs=True,
    ),
)
"""Files that must be refused."""

ACCEPTED = (
    Case("no tensors", of("{}")),
    Case("spaces fill the header up", of("{}      ")),
    Case("any JSON white space does", of(" \n{\t}\r\n ")),
    Case("one tensor", of(one(), 1)),
    Case("an empty name", of(one(name='""'), 1)),
    Case("a name with every kind of escape", of(one(name='"\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\ud83d\\ude00"'), 1)),
    Case("a name with colons and braces", of(one(name='"a:{\\"b\\":[0]}"'), 1)),
    Case("escapes in the names of fields", of('{"a":{"\\u0064type":"U8","shape":[1],"data_offsets":[0,1]}}', 1)),
    Case("fields in any order", of('{"a":{"data_offsets":[0,1],"dtype":"U8","shape":[1]}}', 1)),
    Case("fields that nobody reads", of(one(more=',"x":{"y":[1,"z",null]}'), 1)),
    Case("metadata's name in a field that nobody reads", of(one(more=',"__metadata__":5'), 1)),
    Case("metadata's name in a name", of(one(name='"\\"__metadata__\\":"'), 1)),
    Case("metadata's name in metadata", of('{"__metadata__":{"__metadata__":"x"}}')),
    Case("metadata's name in metadata's text", of('{"__metadata__":{"a":"\\"__metadata__\\":{}"}}')),
    Case("metadata spelled with escapes", of('{"\\u005f_metadata__":{"a":"b"}}')),
    Case("metadata at the end", of('{"a":' + BYTE + ',"__metadata__":{"k":"v"}}', 1)),
    Case("metadata without keys", of('{"__metadata__":{}}')),
    Case("metadata that is null", of('{"__metadata__":null}')),
    Case("no dimensions", of(one(shape="[]"), 1)),
    Case("no elements", of(one(shape="[3,0]", offsets="[0,0]"))),
    Case("no elements and a vast extent", of(one(shape="[9223372036854775807,0]", offsets="[0,0]"))),
    Case("a hundred dimensions", of(one(shape=str([1] * 100)), 1)),
    Case(
        "entries that are not in the order of the bytes",
        of('{"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"a":' + BYTE + "}", 2),
    ),
    Case(
        "tensors of no bytes in one place",
        of(
            '{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"b":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'
        ),
    ),
    Case("F4", of(one('"F4"', "[4]", "[0,2]"), 2)),
    Case("F6", of(one('"F6_E3M2"', "[4]", "[0,3]"), 3)),
    Case(
        "an odd place for wide elements",
        of('{"a":' + BYTE + ',"b":{"dtype":"F64","shape":[1],"data_offsets":[1,9]}}', 9),
    ),
    Case("a dtype of a newer version", of(one('"F128"', "[3]"), 1), differs=True),
    Case("a dtype of a newer version, narrower than a byte", of(one('"F2"', "[16]", "[0,4]"), 4), differs=True),
    Case("-0", of(one(shape="[-0]", offsets="[0,0]")), differs=True),
)
"""Files that must be accepted; those marked `differs` are refused by the reference."""

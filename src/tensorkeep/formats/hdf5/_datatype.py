"""What the elements of a dataset or an attribute are. Pure."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final, Literal

import msgspec

from tensorkeep.errors import FormatError
from tensorkeep.formats.hdf5.structures import Fields
from tensorkeep.limits import MAX_NDIM
from tensorkeep.texts import counted

Form = Literal["number", "opaque", "text", "long text", "list", "unknown"]

_MAX_DEPTH: Final = 16
"""Nesting of datatypes; compounds of arrays of compounds reach 4."""

_INTEGERS: Final = {(size, signed): f"{'UI'[signed]}{8 * size}" for size in (1, 2, 4, 8) for signed in (0, 1)}

_FLOATS: Final = {
    (2, 15, 10, 5, 0, 10, 15): "F16",
    (4, 31, 23, 8, 0, 23, 127): "F32",
    (8, 63, 52, 11, 0, 52, 1023): "F64",
    (2, 15, 7, 8, 0, 7, 127): "BF16",
    (1, 7, 2, 5, 0, 2, 15): "F8_E5M2",
    (1, 7, 3, 4, 0, 3, 7): "F8_E4M3",
}
"""Bytes, place of the sign, place and bits of the exponent, place and bits of the mantissa, bias."""

_COMPLEX: Final = {"F16": "C32", "F32": "C64", "F64": "C128"}
_INTEGER: Final = 0
_LEADING_BIT_IS_IMPLIED: Final = 2
_OF_TEXT: Final = 1
_UTF8: Final = 1
_PADDINGS: Final = {1: b"\0", 2: b" "}
_TRUE_AND_FALSE: Final = {b"FALSE": 0, b"TRUE": 1}

_HOMOGENEOUS_AND_RECTANGULAR: Final = 1
_NAMES: Final = {2: "times", 7: "references to other objects of the file"}


class Datatype(msgspec.Struct, frozen=True):
    """The elements of a dataset.

    Attributes:
        form: Numbers of a dtype, bytes without a meaning, texts in place or in a heap, lists in a heap, or others.
        nbytes: Bytes of one element.
        dtype: Name in the dtype table, for numbers.
        is_big_endian: Whether numbers have their highest byte first.
        shape: Dimensions of each element.
        what: What the elements are, for people.
        base: The elements of lists.
        is_utf8: Whether texts are UTF-8, not bytes or ASCII.
        padding: What fills texts up at their end; empty if a zero byte ends them.
    """

    form: Form
    nbytes: int
    dtype: str | None = None
    is_big_endian: bool = False
    shape: tuple[int, ...] = ()
    what: str = ""
    base: Datatype | None = None
    is_utf8: bool = False
    padding: bytes = b""


def parse_datatype(data: bytes) -> Datatype:
    """Parse a datatype message."""
    return _parse(Fields(data), 0)


def _parse(fields: Fields, depth: int) -> Datatype:
    if depth > _MAX_DEPTH:
        raise FormatError("a datatype is nested too deep", expected=f"at most {_MAX_DEPTH} levels")
    head = fields.uint(1)
    version, kind = head >> 4, head & 15
    bits, nbytes = fields.uint(3), fields.uint(4)
    if not nbytes or not 1 <= version <= 5:
        raise FormatError("a datatype has no size, or no known version", found=f"version {version}, {nbytes} bytes")
    parse = _PARSERS.get(kind)
    if parse is None:
        what = _NAMES.get(kind, f"elements of a datatype that is not known, class {kind}")
        return Datatype("unknown", nbytes, what=what)
    return parse(_Head(kind, version, bits, nbytes, depth), fields)


class _Head(msgspec.Struct, frozen=True):
    """What every datatype begins with, and how deep it is nested."""

    kind: int
    version: int
    bits: int
    nbytes: int
    depth: int

    @property
    def n_members(self) -> int:
        """Members of a compound or an enumeration."""
        return self.bits & 0xFFFF


def _integer(head: _Head, fields: Fields) -> Datatype:
    offset, precision = fields.uint(2), fields.uint(2)
    is_signed = head.kind == _INTEGER and head.bits >> 3 & 1
    dtype = _INTEGERS.get((head.nbytes, is_signed))
    if dtype is None or offset or precision != 8 * head.nbytes:
        return Datatype("unknown", head.nbytes, what=f"integers of {precision} bits in {head.nbytes} bytes")
    return Datatype("number", head.nbytes, dtype, bool(head.bits & 1) and head.nbytes > 1, what="integers")


def _float(head: _Head, fields: Fields) -> Datatype:
    offset, precision = fields.uint(2), fields.uint(2)
    exponent_at, exponent_bits, mantissa_at, mantissa_bits, bias = (fields.uint(n) for n in (1, 1, 1, 1, 4))
    sign_at = head.bits >> 8 & 0xFF
    dtype = _FLOATS.get((head.nbytes, sign_at, exponent_at, exponent_bits, mantissa_at, mantissa_bits, bias))
    order = head.bits & 1 | head.bits >> 5 & 2
    is_normal = head.bits >> 4 & 3 == _LEADING_BIT_IS_IMPLIED and order <= 1
    if dtype is None or offset or precision != 8 * head.nbytes or not is_normal:
        return Datatype(
            "unknown", head.nbytes, what=f"floating-point numbers of {precision} bits in an unusual layout"
        )
    return Datatype("number", head.nbytes, dtype, order == 1 and head.nbytes > 1, what="floating-point numbers")


def _text(head: _Head, _: Fields) -> Datatype:
    padding = _PADDINGS.get(head.bits & 15, b"")
    return Datatype("text", head.nbytes, what="text", is_utf8=head.bits >> 4 & 15 == _UTF8, padding=padding)


def _opaque(head: _Head, fields: Fields) -> Datatype:
    tag = fields.take(min(head.bits & 0xFF, fields.n_left)).rstrip(b"\0").decode(errors="backslashreplace")
    return Datatype("opaque", head.nbytes, what=f"bytes without a dtype{f', called `{tag}`' if tag else ''}")


def _enumeration(head: _Head, fields: Fields) -> Datatype:
    base = _parse(fields, head.depth + 1)
    if base.nbytes != head.nbytes:
        raise FormatError(
            "an enumeration has another size than its numbers", found=f"{head.nbytes} and {base.nbytes}"
        )
    if base.dtype in {"I8", "U8"} and head.n_members == len(_TRUE_AND_FALSE):
        names = [_name(head, fields) for _ in range(head.n_members)]
        if dict(zip(names, fields.take(head.n_members), strict=True)) == _TRUE_AND_FALSE:
            return Datatype("number", head.nbytes, "BOOL", what="true or false")
    return base


def _compound(head: _Head, fields: Fields) -> Datatype:
    """Parse a compound: complex numbers if its members are two equal floats called `r` and `i`."""
    whole = Datatype("unknown", head.nbytes, what=f"records of {counted(head.n_members, 'field')}")
    if head.n_members != 2:
        return whole
    members: list[tuple[bytes, int, Datatype]] = []
    offset_nbytes = 4 if head.version < 3 else (head.nbytes.bit_length() - 1) // 8 + 1
    for _ in range(head.n_members):
        name, start = _name(head, fields), fields.uint(offset_nbytes)
        if head.version == 1:
            if fields.uint(1):  # dimensions of its own, which later versions put into an array
                return whole
            fields.skip(27)
        members.append((name, start, _parse(fields, head.depth + 1)))
    (real, first_at, first), (imaginary, second_at, second) = members
    dtype = _COMPLEX.get(first.dtype or "")
    is_complex = (real, imaginary) == (b"r", b"i") and first == second and not first.shape
    if dtype is None or not is_complex or (first_at, second_at, head.nbytes) != (0, first.nbytes, 2 * first.nbytes):
        return whole
    return Datatype("number", head.nbytes, dtype, first.is_big_endian, what="complex numbers")


def _complex(head: _Head, fields: Fields) -> Datatype:
    """Parse the complex numbers that HDF5 has since version 2: a real and an imaginary part of one datatype."""
    part = _parse(fields, head.depth + 1)
    dtype = _COMPLEX.get(part.dtype or "")
    is_pair = head.bits == _HOMOGENEOUS_AND_RECTANGULAR and not part.shape and head.nbytes == 2 * part.nbytes
    if dtype is None or not is_pair:
        return Datatype("unknown", head.nbytes, what=f"complex numbers, made of {part.what}")
    return Datatype("number", head.nbytes, dtype, part.is_big_endian, what="complex numbers")


def _long(head: _Head, fields: Fields) -> Datatype:
    base = _parse(fields, head.depth + 1)
    if head.bits & 15 == _OF_TEXT:
        return Datatype("long text", head.nbytes, what="text", is_utf8=head.bits >> 8 & 15 == _UTF8)
    return Datatype("list", head.nbytes, what="lists of different lengths", base=base)


def _array(head: _Head, fields: Fields) -> Datatype:
    ndim = fields.uint(1)
    fields.skip(3 if head.version < 3 else 0)
    shape = tuple(fields.uint(4) for _ in range(ndim))
    fields.skip(4 * ndim if head.version < 3 else 0)
    base = _parse(fields, head.depth + 1)
    shape += base.shape
    if len(shape) > MAX_NDIM or prod(shape) * (base.nbytes // prod(base.shape)) != head.nbytes:
        raise FormatError("an array has another size than its elements", found=f"{shape!r:.100}")
    if base.form != "number":
        return Datatype("unknown", head.nbytes, what=f"arrays of {base.what}")
    return msgspec.structs.replace(base, nbytes=head.nbytes, shape=shape)


def _name(head: _Head, fields: Fields) -> bytes:
    """Return a text that a zero ends, and skip what pads it to eight bytes in old versions."""
    stop = fields.data.find(b"\0", fields.position)
    if stop < 0:
        raise FormatError("a field of a datatype has no end of its name")
    name = fields.take(stop - fields.position)
    fields.skip(1 + (-(len(name) + 1) % 8 if head.version < 3 else 0))
    return name


_PARSERS: Final[dict[int, Callable[[_Head, Fields], Datatype]]] = {
    _INTEGER: _integer,
    1: _float,
    3: _text,
    4: _integer,  # bit fields
    5: _opaque,
    6: _compound,
    8: _enumeration,
    9: _long,
    10: _array,
    11: _complex,
}
"""Class of a datatype to what parses the rest of it."""

"""What the elements of a NumPy array are, by the `descr` of its header: numbers, bytes, or records of fields. Pure.

NumPy is not asked for a dtype. A closed table has those of tensors; every other one is kept with the reason why it is
not a tensor's.
"""

from __future__ import annotations

import re
from math import prod
from typing import Any, Final

import msgspec

from tensorkeep.dtypes import BY_NUMPY, FOREIGN_DTYPES
from tensorkeep.errors import FormatError
from tensorkeep.limits import MAX_I64, MAX_NDIM

_match_code = re.compile(r"([<>|]?)([a-zA-Z])([0-9]{0,9})(\[[0-9a-zA-Z/]{1,20}\])?").fullmatch

LETTERS: Final = {"bool": "b", "int": "i", "uint": "u", "float": "f", "complex": "c"}
_DTYPES: Final = {
    f"{letter}{dtype.itemsize}": dtype.name
    for dtype in (*BY_NUMPY.values(), *FOREIGN_DTYPES)
    if (letter := LETTERS.get(dtype.numpy.rstrip("0123456789")))
} | {"M8": "I64", "m8": "I64"}
"""NumPy's letter and bytes, such as `f4`, to the name in the dtype table; dates and spans count their unit."""

_REASONS: Final = {
    "O": "Python objects in a pickle, which is never run",
    "S": "text",
    "a": "text",
    "U": "text",
    "f": "floating-point numbers whose layout depends on the machine",
    "c": "complex numbers whose layout depends on the machine",
}
_TEXTS: Final = frozenset("SaU")
_RAW: Final = "bytes without a dtype, as NumPy saves bfloat16 and float8"
_NO_ORDER: Final = "numbers without a byte order"
_WIDTHS: Final = {"U": 4}
"""Bytes for each unit of the number in a code; 1 for all other letters."""


class Field(msgspec.Struct, frozen=True):
    """One tensor's worth of every element: the element itself, or a field of a structured one.

    Attributes:
        path: Names of the fields around it, each after a dot; empty for the element itself.
        code: NumPy's text for it, such as `"<f4"`.
        nbytes: Bytes of one number.
        dtype: Name in the dtype table, or None if it is not a tensor's.
        reason: Why it is not; empty if it is.
        is_raw: Whether the bytes have no dtype, so that one can be named for them.
        is_text: Whether they are a text, or bytes of any length up to a limit.
        is_big_endian: Whether numbers have their highest byte first.
        start: First byte, from the start of the element.
        shape: Dimensions that the field adds to the array's.
        steps: Bytes from one entry to the next in each of these.
    """

    path: str
    code: str
    nbytes: int
    dtype: str | None = None
    reason: str = ""
    is_raw: bool = False
    is_text: bool = False
    is_big_endian: bool = False
    start: int = 0
    shape: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()

    @property
    def is_time(self) -> bool:
        """Whether numbers are dates or time spans, in a unit that the code names."""
        return self.dtype is not None and "8" in self.code and self.code.lstrip("<>|")[0] in "Mm"


class Elements(msgspec.Struct, frozen=True):
    """What each element of an array is.

    Attributes:
        nbytes: Bytes of one element.
        fields: What it consists of, without padding.
        holds_objects: Whether a pickle follows the header instead of elements.
    """

    nbytes: int
    fields: tuple[Field, ...]
    holds_objects: bool


def parse_elements(descr: Any) -> Elements:
    """Read the `descr` of a header."""
    if type(descr) is str:
        field = _parse_code(descr)
        return Elements(field.nbytes, (field,), field.reason == _REASONS["O"])
    if type(descr) is list:
        return _parse_record(descr)
    raise FormatError("the array has no dtype", expected="a text or a list of fields", found=f"{descr!r:.100}")


def _parse_code(code: str) -> Field:
    match = _match_code(code)
    if match is None:
        raise FormatError("the array has a dtype that NumPy does not write", found=f"{code!r:.100}")
    order, letter, digits, _ = match.groups()
    if letter == "O":
        return Field("", code, 8, reason=_REASONS["O"])
    if not digits:
        raise FormatError("the dtype of the array has no size", found=repr(code))
    nbytes = int(digits) * _WIDTHS.get(letter, 1)
    dtype = _DTYPES.get(f"{letter}{nbytes}")
    if dtype is not None and nbytes > 1 and order in {"", "|"}:
        return Field("", code, nbytes, reason=_NO_ORDER)
    if dtype is not None:
        return Field("", code, nbytes, dtype, is_big_endian=order == ">")
    # ml_dtypes' float8_e5m2 calls itself <f1; its other types call themselves V
    if letter == "V" or code == "<f1":
        return Field("", code, nbytes, reason=_RAW, is_raw=True)
    if letter not in _REASONS:
        raise FormatError("the array has a dtype that NumPy does not have", found=repr(code))
    return Field("", code, nbytes, reason=_REASONS[letter], is_text=letter in _TEXTS)


def _parse_record(descr: list[Any]) -> Elements:
    fields: list[Field] = []
    names: set[str] = set()
    holds_objects = False
    position = 0
    for part in descr:
        name, inner, shape = _parse_part(part)
        elements = parse_elements(inner)
        holds_objects |= elements.holds_objects
        if name or type(inner) is list or not elements.fields[0].is_raw:  # else it is padding
            if not name or name in names:
                raise FormatError("a field of the array has no name, or that of another", found=repr(name))
            names.add(name)
            steps = tuple(elements.nbytes * prod(shape[axis + 1 :]) for axis in range(len(shape)))
            fields += [
                msgspec.structs.replace(
                    field,
                    path=f".{name}{field.path}",
                    start=position + field.start,
                    shape=shape + field.shape,
                    steps=steps + field.steps,
                )
                for field in elements.fields
            ]
        position += elements.nbytes * prod(shape)
    _refuse_equal_paths(fields)
    return Elements(position, tuple(fields), holds_objects)


def _refuse_equal_paths(fields: list[Field]) -> None:
    """Refuse fields of one path: `a.b` beside the field `b` of `a`."""
    paths: set[str] = set()
    for field in fields:
        if field.path in paths:
            raise FormatError(
                "two fields of the array would be tensors of one name",
                found=repr(field.path[1:]),
                hint="Save the array with other names of fields; a dot separates names within each other",
            )
        paths.add(field.path)


def _parse_part(part: Any) -> tuple[str, Any, tuple[int, ...]]:
    """Return name, description and shape of one field; a name may be a pair of title and name."""
    if type(part) is tuple and len(part) in {2, 3}:
        name, inner, *rest = part
        name = name[1] if type(name) is tuple and len(name) == 2 else name
        if type(name) is str:
            return name, inner, check_shape(rest[0]) if rest else ()
    raise FormatError("a field of the array is not described as NumPy does", found=f"{part!r:.100}")


def check_shape(shape: Any) -> tuple[int, ...]:
    """Return a shape, if it is one that an array can have."""
    if type(shape) is not tuple or any(type(extent) is not int for extent in shape):
        raise FormatError("the shape of the array is not a tuple of whole numbers", found=f"{shape!r:.100}")
    if len(shape) > MAX_NDIM or prod(extent or 1 for extent in shape) > MAX_I64:
        raise FormatError(
            "the shape of the array is larger than NumPy's",
            expected=f"at most {MAX_NDIM} dimensions and {MAX_I64:,} elements",
            found=f"{shape!r:.100}",
        )
    return shape

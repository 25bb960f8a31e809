"""The header of a `.npy` array: magic, version, length, and a Python dict of dtype, order and shape. Pure."""

from __future__ import annotations

from math import prod
from typing import Any, Final

import msgspec

from tensorkeep.errors import FormatError, LimitError, UnsupportedError
from tensorkeep.formats.npy._elements import Elements, check_shape, parse_elements
from tensorkeep.formats.npy._literal import parse_literal
from tensorkeep.limits import MAX_ARRAY_HEADER_NBYTES, MAX_I64

MAGIC: Final = b"\x93NUMPY"
"""First bytes of the file."""

FIRST_NBYTES: Final = 128
"""Bytes to read first: NumPy pads the header of a plain array to so many."""

_LENGTH_NBYTES: Final = {(1, 0): 2, (2, 0): 4, (3, 0): 4}
"""Version to the bytes of its length field."""

_KEYS: Final = {"descr", "fortran_order", "shape"}


class ArrayHeader(msgspec.Struct, frozen=True):
    """The header of one array.

    Attributes:
        elements: What each element is.
        is_fortran: Whether the first dimension varies fastest.
        shape: Elements along each dimension.
    """

    elements: Elements
    is_fortran: bool
    shape: tuple[int, ...]

    @property
    def data_nbytes(self) -> int:
        """Bytes of all elements, unless they are objects."""
        return prod(self.shape) * self.elements.nbytes

    @property
    def steps(self) -> tuple[int, ...]:
        """Bytes from one entry of each dimension to the next."""
        axes = range(len(self.shape))
        before = [self.shape[:axis] if self.is_fortran else self.shape[axis + 1 :] for axis in axes]
        return tuple(self.elements.nbytes * prod(extents) for extents in before)


def header_nbytes(head: bytes, nbytes: int) -> int:
    """Return the bytes before the data of an array of `nbytes` bytes, given its first ones."""
    if not head.startswith(MAGIC) or len(head) < 12:
        raise FormatError("not a NumPy array", expected="\\x93NUMPY at the start", found=f"{head[:12]!r}"[1:])
    version = head[6], head[7]
    length_nbytes = _LENGTH_NBYTES.get(version)
    if length_nbytes is None:
        raise UnsupportedError(
            "the array has a version of the .npy format that is not known",
            expected="1.0, 2.0 or 3.0",
            found=f"{version[0]}.{version[1]}",
        )
    length = int.from_bytes(head[8 : 8 + length_nbytes], "little")
    if length > MAX_ARRAY_HEADER_NBYTES:
        raise LimitError(
            "the header of the array is too long",
            expected=f"at most {MAX_ARRAY_HEADER_NBYTES:,} bytes",
            found=f"{length:,}",
        )
    data_start = 8 + length_nbytes + length
    if data_start > nbytes:
        raise FormatError(
            "the array ends in its header", expected=f"at least {data_start:,} bytes", found=f"{nbytes:,}"
        )
    return data_start


def parse_array_header(head: bytes) -> ArrayHeader:
    """Parse all bytes before the data."""
    text_start = 8 + _LENGTH_NBYTES[head[6], head[7]]
    try:
        text = head[text_start:].decode("utf-8" if head[6] == 3 else "latin-1")
    except UnicodeDecodeError as error:
        raise FormatError("the header of the array is not UTF-8", found=f"byte {error.start}") from None
    members = parse_literal(text)
    if type(members) is not dict or members.keys() != _KEYS:
        raise FormatError(
            "the header of the array has other keys than it should",
            expected=", ".join(sorted(_KEYS)),
            found=_keys(members),
        )
    if type(members["fortran_order"]) is not bool:
        raise FormatError("fortran_order is neither True nor False", found=f"{members['fortran_order']!r:.100}")
    header = ArrayHeader(parse_elements(members["descr"]), members["fortran_order"], check_shape(members["shape"]))
    if prod(extent or 1 for extent in header.shape) * header.elements.nbytes > MAX_I64:
        raise FormatError("the array is larger than any file", found=f"{header.shape!r:.100}")
    return header


def _keys(members: Any) -> str:
    return ", ".join(members) if type(members) is dict else f"{members!r:.100}"

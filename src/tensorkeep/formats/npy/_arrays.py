"""The tensors that an array of a `.npy` file gives: itself, or the fields of a structured one. Pure."""

from __future__ import annotations

from math import prod
from typing import Any

import msgspec

from tensorkeep.digests import CRC32
from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.errors import FormatError
from tensorkeep.formats._chunks import Checksum
from tensorkeep.formats._contents import TensorPlace, UntypedTensor
from tensorkeep.formats._strings import StringArray
from tensorkeep.formats.archives import InflatedSource, Member
from tensorkeep.formats.npy._elements import Field
from tensorkeep.formats.npy._header import ArrayHeader
from tensorkeep.formats.npy._records import RecordChunks
from tensorkeep.transport import ByteRange, ByteSource

_LAST_CHARACTER, _SURROGATES, _N_SURROGATES = 0x10FFFF, 27, 0x800
"""The last code point, and the block of 2,048 that are no characters."""

_NO_BYTES = "a field without bytes"


class UnknownArray(msgspec.Struct, frozen=True):
    """Something in the file that is not a tensor.

    Attributes:
        code: NumPy's text for its dtype, such as `"|O"`; empty for a member that is not an array.
        reason: Why it is not read.
    """

    code: str
    reason: str

    def __str__(self) -> str:
        return f"{self.code}: {self.reason}" if self.code else self.reason


Placed = TensorPlace | UntypedTensor | StringArray | UnknownArray


class ArrayBytes(msgspec.Struct, frozen=True):
    """Where the bytes of an array are, header included.

    Attributes:
        start: Byte of the source at which the header starts.
        whole: What that is a byte of: the file itself, or what a deflated member inflates to.
        source: The latter; None if the bytes are in the file itself.
        checksum: Of header and data; None if the archive has none.
    """

    start: int
    whole: ByteSource
    source: ByteSource | None = None
    checksum: Checksum | None = None


def bytes_of(member: Member, archive: ByteSource) -> ArrayBytes:
    """Return where the bytes of a member are."""
    source = InflatedSource(archive, msgspec.structs.replace(member, head=b"")) if member.is_compressed else None
    span = ByteRange(0, member.nbytes) if source else member.span
    checksum = Checksum(CRC32, member.crc.to_bytes(4, "big"), span, source) if member.crc else None
    return ArrayBytes(span.start, source or archive, source, checksum)


def times_of(name: str, header: ArrayHeader) -> dict[str, str]:
    """Return NumPy's text for the dtypes of dates and time spans, which are integers as tensors."""
    return {name + field.path: field.code for field in header.elements.fields if field.is_time}


def place_array(name: str, header: ArrayHeader, data_start: int, where: ArrayBytes) -> dict[str, Placed]:
    """Return the array by its name, or the fields of a structured one by theirs."""
    return {name + field.path: _place_field(field, header, data_start, where) for field in header.elements.fields}


def _place_field(field: Field, header: ArrayHeader, data_start: int, where: ArrayBytes) -> Placed:
    if header.elements.holds_objects or not (field.dtype or field.is_raw):
        if field.is_text and field.nbytes and not header.elements.holds_objects:
            return _strings(field, header, data_start, where)
        return UnknownArray(field.code, field.reason or "next to Python objects, in one pickle, which is never run")
    nbytes = ALL_BY_NAME[field.dtype].itemsize if field.dtype else field.nbytes
    if not nbytes:
        return UnknownArray(field.code, _NO_BYTES)
    place = _numbers(field, nbytes, header, where.start + data_start, where)
    return place if field.dtype else UntypedTensor(f"{field.code}: {field.reason}", nbytes, place)


def _numbers(field: Field, nbytes: int, header: ArrayHeader, start: int, where: ArrayBytes) -> TensorPlace:
    """Return where the numbers of a field are; `nbytes` is the size of one, and the first record is at `start`."""
    dtype = field.dtype or field.code
    fills_records = nbytes == header.elements.nbytes and not field.start and not field.shape
    if fills_records and not header.is_fortran:
        return TensorPlace(
            dtype,
            header.shape,
            start,
            is_big_endian=field.is_big_endian,
            source=where.source,
            checksum=where.checksum,
        )
    shape, steps = header.shape + field.shape, header.steps + field.steps
    n_elements = prod(shape)
    if n_elements and any(step % nbytes for extent, step in zip(shape, steps, strict=True) if extent > 1):
        records = RecordChunks(field, nbytes, header, where.whole, start, where.checksum)
        return TensorPlace(dtype, shape, start, chunks=records)
    return TensorPlace(
        dtype,
        shape,
        start + (field.start if n_elements else 0),  # without records, the file may end at their start
        strides=tuple(step // nbytes for step in steps),
        is_big_endian=field.is_big_endian,
        source=where.source,
        checksum=where.checksum,
    )


def _strings(field: Field, header: ArrayHeader, data_start: int, where: ArrayBytes) -> StringArray:
    """Return an array of strings, read with what is around it: zero bytes at their end are not part of them."""
    shape, steps = header.shape + field.shape, header.steps + field.steps
    start = where.start + data_start
    span = ByteRange(start, start + header.data_nbytes)

    def read() -> list[Any]:
        if not prod(shape):
            return []
        import numpy as np

        code = field.code.replace("a", "S")
        array: Any = np.ndarray(shape, code, where.whole.read(span), field.start, steps).ravel()
        if array.dtype.kind == "U":  # NumPy would make texts of any numbers
            points = array.view(f"{array.dtype.str[0]}u4")
            if (points > _LAST_CHARACTER).any() or (points // _N_SURROGATES == _SURROGATES).any():
                raise FormatError("a text has a character that does not exist", found=f"{points.max():#x}")
        found: list[Any] = array.tolist()
        return found

    return StringArray(shape, read)

"""Where the elements of a tensor are: bytes as they are, or numbers that are decoded when they are read. Pure."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Final

from tensorkeep.errors import FormatError, LimitError
from tensorkeep.formats._chunks import Checksum
from tensorkeep.formats._contents import TensorPlace
from tensorkeep.formats._strings import StringArray
from tensorkeep.formats.onnx._decoded import GatheredElements, NarrowIntegers, VarintElements, gathered
from tensorkeep.formats.onnx._dtypes import (
    DOUBLE_DATA,
    FLOAT_DATA,
    INT32_DATA,
    INT64_DATA,
    UINT64_DATA,
    DataType,
)
from tensorkeep.formats.protobuf import FIXED32, FIXED64, LENGTH, VARINT, Field
from tensorkeep.transport import ByteRange, ByteSource

TYPED_FIELDS: Final = {
    FLOAT_DATA: (FIXED32, LENGTH),
    INT32_DATA: (VARINT, LENGTH),
    INT64_DATA: (VARINT, LENGTH),
    DOUBLE_DATA: (FIXED64, LENGTH),
    UINT64_DATA: (VARINT, LENGTH),
}
"""Number of each field for elements to how it may be written."""

_MAX_STRINGS_NBYTES: Final = 2**30


def place_raw(
    span: ByteRange,
    data_type: DataType,
    shape: tuple[int, ...],
    *,
    own: ByteSource,
    other: ByteSource | None = None,
    checksum: Checksum | None = None,
) -> TensorPlace:
    """Place raw bytes, which are in the model's own file or in another source."""
    n_elements = prod(shape)
    if len(span) != data_type.nbytes(n_elements):
        raise FormatError(
            "its bytes do not have the size that its shape says",
            expected=f"{data_type.nbytes(n_elements):,} for {list(shape)} {data_type.name}",
            found=f"{len(span):,}",
        )
    if not data_type.is_widened:
        return TensorPlace(data_type.dtype, shape, span.start, source=other, checksum=checksum)
    is_signed = data_type.dtype == "I8"
    wide = NarrowIntegers(other or own, span.start, n_elements, data_type.bits, is_signed=is_signed)
    return TensorPlace(data_type.dtype, shape, 0, source=wide, checksum=checksum)


def place_numbers(own: ByteSource, fields: list[Field], data_type: DataType, shape: tuple[int, ...]) -> TensorPlace:
    """Place the elements of a typed field, packed or one by one."""
    for field in fields:
        field.expect(*TYPED_FIELDS[data_type.field])
    spans = tuple(ByteRange(field.start, field.stop) for field in fields)
    n_stored = sum(map(len, spans))
    if data_type.field in {FLOAT_DATA, DOUBLE_DATA}:
        if len(spans) == 1:
            return place_raw(spans[0], data_type, shape, own=own)
        return place_raw(ByteRange(0, n_stored), data_type, shape, own=own, other=GatheredElements(own, spans))
    nbytes = data_type.nbytes(prod(shape))
    width = max(data_type.bits, 8)
    n_numbers = prod(shape) if data_type.bits >= 6 else nbytes
    if not n_numbers <= n_stored <= 10 * n_numbers:
        raise FormatError(
            "it does not have the elements that its shape says",
            expected=f"{n_numbers:,} numbers of 1 to 10 bytes",
            found=f"{n_stored:,} bytes",
        )
    if not n_numbers:
        return place_raw(ByteRange(0, 0), data_type, shape, own=own)
    numbers = VarintElements(own, spans, 6 if data_type.bits == 6 else width, nbytes)
    return place_raw(ByteRange(0, nbytes), data_type, shape, own=own, other=numbers)


def strings_of(own: ByteSource, fields: list[Field], shape: tuple[int, ...]) -> StringArray:
    """Return the texts in some fields."""
    if len(fields) != prod(shape):
        raise FormatError(
            "it does not have the strings that its shape says", expected=f"{prod(shape):,}", found=f"{len(fields):,}"
        )
    return StringArray(shape, partial(_read_strings, own, tuple(field.span for field in fields)))


def _read_strings(own: ByteSource, spans: tuple[ByteRange, ...]) -> list[str]:
    n_bytes = sum(map(len, spans))
    if n_bytes > _MAX_STRINGS_NBYTES:
        raise LimitError(
            "the strings are too long together",
            path=own.name,
            expected=f"at most {_MAX_STRINGS_NBYTES:,} bytes",
            found=f"{n_bytes:,}",
        )
    data = gathered(own, spans)
    found, at = [], 0
    for span in spans:
        try:
            found.append(str(data[at : at + len(span)], "utf-8"))
        except UnicodeDecodeError as error:
            at_byte = span.start + error.start
            raise FormatError("a string is not UTF-8", path=own.name, found=f"byte {at_byte:,} of the file") from None
        at += len(span)
    return found

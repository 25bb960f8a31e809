"""One tensor of a model: its raw bytes, elements in typed fields, strings, or a place in another file. Pure."""

from __future__ import annotations

import re
from math import prod
from typing import Final

from tensorkeep.errors import FormatError
from tensorkeep.formats._contents import TensorPlace
from tensorkeep.formats._strings import StringArray
from tensorkeep.formats.onnx._dtypes import DATA_TYPES, STRING, DataType
from tensorkeep.formats.onnx._elements import TYPED_FIELDS, place_numbers, place_raw, strings_of
from tensorkeep.formats.onnx._model import ExternalTensor, UnreadTensor
from tensorkeep.formats.onnx._plain_tensor import read_plain
from tensorkeep.formats.protobuf import Message, MessageReader
from tensorkeep.limits import MAX_I64, MAX_LISTED_NDIM, MAX_NAME_LENGTH
from tensorkeep.transport import ByteRange

_DIMS: Final = 1
_DATA_TYPE: Final = 2
_SEGMENT: Final = 3
_STRING_DATA: Final = 6
_NAME: Final = 8
_RAW_DATA: Final = 9
_EXTERNAL_DATA: Final = 13
_DATA_LOCATION: Final = 14
_KEPT: Final = frozenset((
    *(_DIMS, _DATA_TYPE, _SEGMENT, _STRING_DATA, _NAME, _RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION),
    *TYPED_FIELDS,
))
_IS_EXTERNAL: Final = 1
_DIMS_NBYTES: Final = 10 * MAX_LISTED_NDIM
_MAX_TEXT_NBYTES: Final = 4 * MAX_NAME_LENGTH
_is_number = re.compile(r"[0-9]{1,20}").fullmatch
_is_sha1 = re.compile(r"[0-9a-fA-F]{40}").fullmatch

Placed = TensorPlace | ExternalTensor | StringArray | UnreadTensor


def read_tensor(reader: MessageReader, span: ByteRange) -> tuple[str, Placed]:
    """Return the name of a tensor, and where its elements are."""
    plain = read_plain(reader, span)
    if plain is not None:
        return plain
    message = Message(reader, span, _KEPT)
    name = message.text(_NAME, max_nbytes=_MAX_TEXT_NBYTES)
    try:
        return name, _place(message, span)
    except FormatError as error:
        raise error.with_fields(message=f"tensor `{name:.200}`: {error.message}", tensor=name) from None


def checked_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape, if a tensor can have it."""
    if len(shape) > MAX_LISTED_NDIM or min(shape, default=0) < 0 or prod(extent or 1 for extent in shape) > MAX_I64:
        raise FormatError("no tensor has its shape", found=f"{shape!r:.100}")
    return shape


def _place(message: Message, span: ByteRange) -> Placed:
    shape = checked_shape(message.int64s(_DIMS, max_nbytes=_DIMS_NBYTES))
    number = message.int64(_DATA_TYPE)
    if number == STRING:
        return strings_of(message.reader.source, message.all(_STRING_DATA), shape)
    data_type = DATA_TYPES.get(number)
    if data_type is None:
        return UnreadTensor(f"elements of ONNX's data type {number}, which this version does not know")
    if _SEGMENT in message:
        return UnreadTensor("a part of a tensor, in a form that ONNX itself does not read")
    if not data_type.is_widened and prod(shape) * data_type.bits % 8:
        return UnreadTensor(f"{list(shape)} elements of {data_type.bits} bits, which do not fill whole bytes")
    if message.int64(_DATA_LOCATION) == _IS_EXTERNAL:
        return _external(message, data_type, shape)
    return _place_inside(message, span, data_type, shape)


def _place_inside(message: Message, span: ByteRange, data_type: DataType, shape: tuple[int, ...]) -> Placed:
    own, raw = message.reader.source, message.one(_RAW_DATA)
    typed = [number for number in TYPED_FIELDS if number in message]
    if (raw is not None) + len(typed) > 1:
        raise FormatError("its elements are in several fields", found=", ".join(map(str, [_RAW_DATA, *typed])))
    if raw is not None:
        return place_raw(raw.span, data_type, shape, own=own)
    if typed and typed[0] != data_type.field:
        raise FormatError(
            "its elements are in the field of another type",
            expected=f"field {data_type.field} for {data_type.name}",
            found=f"field {typed[0]}",
        )
    if typed:
        return place_numbers(own, message.all(typed[0]), data_type, shape)
    if prod(shape):
        return UnreadTensor(f"a tensor of {data_type.name} whose elements are not in the file")
    return place_raw(ByteRange(span.start, span.start), data_type, shape, own=own)


def _external(message: Message, data_type: DataType, shape: tuple[int, ...]) -> ExternalTensor:
    entries: dict[str, str] = {}
    for field in message.all(_EXTERNAL_DATA):
        entry = Message(message.reader, field.span)
        key = entry.text(1, max_nbytes=_MAX_TEXT_NBYTES)
        if key in entries:
            raise FormatError("it names its place in another file twice", found=key)
        entries[key] = entry.text(2, max_nbytes=_MAX_TEXT_NBYTES)
    nbytes = data_type.nbytes(prod(shape))
    found = _number(entries, "length", nbytes)
    if found != nbytes:
        raise FormatError(
            "its bytes in another file do not have the size that its shape says",
            expected=f"{nbytes:,} for {list(shape)} {data_type.name}",
            found=f"{found:,}",
        )
    checksum = entries.get("checksum", "")
    return ExternalTensor(
        entries.get("location", ""),
        _number(entries, "offset", 0),
        nbytes,
        bytes.fromhex(checksum) if _is_sha1(checksum) else None,
        data_type,
        shape,
    )


def _number(entries: dict[str, str], key: str, default: int) -> int:
    text = entries.get(key)
    if text is None:
        return default
    if not _is_number(text) or int(text) > MAX_I64:
        raise FormatError(f"its {key} in another file is not a number of bytes", found=f"{text!r:.100}")
    return int(text)

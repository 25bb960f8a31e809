"""The header of a GGUF file to write: version 3, lowest byte first. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tensorkeep.errors import FormatError
from tensorkeep.formats.gguf._read import DEFAULT_ALIGNMENT, MAGIC
from tensorkeep.formats.gguf._tensors import TensorInfo
from tensorkeep.formats.gguf._values import ARRAY, NUMBER_TYPES, STRING, ValueType
from tensorkeep.limits import MAX_ATTRIBUTE_DEPTH

_VERSION: Final = 3
_CODES: Final = {name: (number, struct.Struct(f"<{code}")) for number, (name, code) in NUMBER_TYPES.items()}


def emit_header(
    values: Mapping[str, Any], types: Mapping[str, ValueType], infos: list[TensorInfo], alignment: int
) -> bytes:
    """Return everything before the first tensor; values without a type are texts."""
    parts = [MAGIC, struct.pack("<IQQ", _VERSION, len(infos), len(values))]
    for key, value in values.items():
        try:
            parts += [_text(key), *_typed(value, types.get(key, "string"))]
        except (struct.error, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise FormatError(
                f"the value of {key!r:.100} does not have its type",
                expected=f"{types.get(key)!r:.100}",
                found=f"{value!r:.100} ({error})",
            ) from None
    parts += map(_info, infos)
    nbytes = sum(map(len, parts))
    return b"".join([*parts, bytes(-nbytes % alignment)])


def padded(nbytes: int, alignment: int = DEFAULT_ALIGNMENT) -> int:
    """Return a size rounded up to the alignment, at which the next tensor begins."""
    return nbytes + -nbytes % alignment


def _info(info: TensorInfo) -> bytes:
    extents = struct.pack(f"<I{len(info.shape)}Q", len(info.shape), *reversed(info.shape))
    return _text(info.name) + extents + struct.pack("<IQ", info.type_number, info.start)


def _typed(value: Any, type_: ValueType) -> Iterable[bytes]:
    """Return a value after the number of its type."""
    return [struct.pack("<I", _number_of(type_)), *_parts(value, type_, 0)]


def _parts(value: Any, type_: ValueType, depth: int) -> Iterable[bytes]:
    if type_ == "string":
        return [_text(value)]
    if isinstance(type_, str) and type_ in _CODES:
        return [_CODES[type_][1].pack(value)]
    if depth > MAX_ATTRIBUTE_DEPTH:
        raise ValueError("nested too deeply")
    inner = _inner_types(type_, len(value))
    head = struct.pack("<IQ", _number_of(type_[1:-1] if isinstance(type_, str) else type_), len(value))
    return [head, *(part for item, each in zip(value, inner, strict=True) for part in _parts(item, each, depth + 1))]


def _number_of(type_: ValueType) -> int:
    if type_ == "string":
        return STRING
    return _CODES[type_][0] if isinstance(type_, str) and type_ in _CODES else ARRAY


def _inner_types(array: ValueType, n: int) -> list[ValueType]:
    if not isinstance(array, str):
        return array
    if not (array.startswith("[") and array.endswith("]")):
        raise ValueError("no such type")
    return [array[1:-1]] * n


def _text(value: str | bytes) -> bytes:
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw

"""A GGUF header as text metadata, complete enough to write the file again. Pure.

Each key keeps its name, with its value as text: a text as it is, anything else as JSON. What that leaves open is in
one more key, `tensorkeep.gguf`, as JSON:

    {"types": {"llama.block_count": "u32", ...}, "tensors": {"output.weight": ["Q6_K", [32000, 4096]]}}

`types` has the type of each value, `tensors` the type and shape of each tensor, both in the order of the file. In a
safetensors file, quantized tensors are rows of bytes, and tensors and keys are sorted.
"""

from __future__ import annotations

import struct
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from tensorkeep.errors import FormatError
from tensorkeep.formats._attributes import attribute_text
from tensorkeep.formats._contents import TensorPlace
from tensorkeep.formats.gguf._values import ValueType

RECORD_KEY: Final = "tensorkeep.gguf"

_F32: Final = struct.Struct("<f")
_FEWEST_DIGITS: Final = 6
_MOST_DIGITS: Final = 9
"""Decimal digits that tell any two F32 numbers apart."""


class GgufRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the texts of a GGUF header leave open.

    Attributes:
        version: Version of the format.
        types: Key to the type of its value, in the order of the file.
        tensors: Name to type and shape of each tensor, in the order of the file.
        is_big_endian: Whether their blocks have the highest byte first.
    """

    version: int = 3
    is_big_endian: bool = False
    types: Mapping[str, ValueType] = {}
    tensors: Mapping[str, tuple[str, tuple[int, ...]]] = {}


def record_texts(
    attributes: Mapping[str, Any],
    types: Mapping[str, ValueType],
    tensors: Mapping[str, TensorPlace],
    version: int,
    *,
    is_big_endian: bool = False,
) -> dict[str, str]:
    """Return a header as metadata."""
    texts = {key: attribute_text(_shortest(value, types[key])) for key, value in attributes.items()}
    listed = {name: (place.dtype, place.shape) for name, place in tensors.items()}
    types = {key: "bytes" if isinstance(attributes[key], bytes) else type_ for key, type_ in types.items()}
    record = GgufRecord(version, is_big_endian, types, listed)
    return texts | emit_record(record)


def _shortest(value: Any, type_: ValueType) -> Any:
    """Return F32 numbers as the shortest decimals that give them again: 1e-05, not 9.999999747378752e-06."""
    if type_ == "f32":
        return _shortest_number(value)
    if type_ == "[f32]":
        return [_shortest_number(number) for number in value]
    return value


def _shortest_number(number: float) -> float:
    for n_digits in range(_FEWEST_DIGITS, _MOST_DIGITS):
        short = float(f"{number:.{n_digits}g}")
        if abs(short) < 1e38 and _F32.unpack(_F32.pack(short))[0] == number:
            return short
    return number


def parse_record(texts: Mapping[str, str]) -> GgufRecord:
    """Return the record in metadata, or an empty one."""
    with _refusing():
        return msgspec.json.decode(texts.get(RECORD_KEY, "{}"), type=GgufRecord)


def emit_record(record: GgufRecord) -> dict[str, str]:
    """Return metadata that has a record."""
    return {RECORD_KEY: msgspec.json.encode(record).decode()}


def parse_texts(texts: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, ValueType], GgufRecord]:
    """Return the values in metadata, the types of those that the record knows, and the record."""
    record = parse_record(texts)
    with _refusing():
        in_order = [
            *(key for key in record.types if key in texts),
            *(key for key in texts if key not in record.types),
        ]
        typed = {key: record.types.get(key, "string") for key in in_order if key != RECORD_KEY}
        values = {key: _value(texts[key], type_) for key, type_ in typed.items()}
    return values, {key: "string" if type_ == "bytes" else type_ for key, type_ in typed.items()}, record


@contextmanager
def _refusing() -> Iterator[None]:
    """Refuse metadata that are something else."""
    try:
        yield
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FormatError(
            f"the metadata are not what {RECORD_KEY} says of them",
            found=f"{error!r:.200}",
            hint=f"Without {RECORD_KEY}, all metadata are written as text",
        ) from None


def _value(text: str, type_: ValueType) -> Any:
    return text if type_ == "string" else _unplain(msgspec.json.decode(text), type_)


def _unplain(value: Any, type_: ValueType) -> Any:
    """Undo what `attribute_text` did to what JSON does not have: bytes, and numbers that are not finite."""
    if isinstance(value, list):
        inner = type_[1:-1] if isinstance(type_, str) else ""
        return [_unplain(item, inner) for item in value] if isinstance(type_, str) else _unplain_each(value, type_)
    if isinstance(value, dict):
        return b64decode(value["base64"], validate=True)
    return float(value) if type_ in {"f32", "f64"} else value


def _unplain_each(values: list[Any], types: list[Any]) -> list[Any]:
    return [_unplain(value, type_) for value, type_ in zip(values, types, strict=True)]

"""A GGUF header as text metadata, complete enough to write the file again. Pure.

Each key keeps its name, with its value as text: a text as it is, anything else as JSON. What that leaves open is in
one more key, `tensorkeep.gguf`, as JSON:

    {"version": 3, "types": {"llama.block_count": "u32", ...}, "tensors": {"output.weight": ["Q6_K", [32000, 4096]]}}

`types` has the type of each value; `tensors` has the type and shape of each quantized tensor, which safetensors files
hold as rows of bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tensorkeep.formats._attributes import attribute_text
from tensorkeep.formats._contents import TensorPlace
from tensorkeep.formats.gguf._types import GGML_TYPES_BY_NAME
from tensorkeep.formats.gguf._values import ValueType

RECORD_KEY: Final = "tensorkeep.gguf"

_F32: Final = struct.Struct("<f")
_FEWEST_DIGITS: Final = 6
_MOST_DIGITS: Final = 9
"""Decimal digits that tell any two F32 numbers apart."""


class GgufRecord(msgspec.Struct, frozen=True):
    """What the texts of a GGUF header leave open.

    Attributes:
        version: Version of the format.
        types: Key to the type of its value.
        tensors: Name to type and shape of each quantized tensor.
    """

    version: int = 3
    types: Mapping[str, ValueType] = {}
    tensors: Mapping[str, tuple[str, tuple[int, ...]]] = {}


def record_texts(
    attributes: Mapping[str, Any],
    types: Mapping[str, ValueType],
    tensors: Mapping[str, TensorPlace],
    version: int,
) -> dict[str, str]:
    """Return a header as metadata."""
    texts = {key: attribute_text(_shortest(value, types[key])) for key, value in attributes.items()}
    quantized = {
        name: (place.dtype, place.shape)
        for name, place in tensors.items()
        if place.dtype in GGML_TYPES_BY_NAME and GGML_TYPES_BY_NAME[place.dtype].is_quantized
    }
    record = GgufRecord(version, types, quantized)
    return texts | {RECORD_KEY: msgspec.json.encode(record).decode()}


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

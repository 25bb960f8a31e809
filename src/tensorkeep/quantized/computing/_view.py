"""A view in which quantized tensors that consist of several are one."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from tensorkeep.dtypes import DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import FormatError, UnsupportedError
from tensorkeep.quantized._read import layouts
from tensorkeep.quantized._record import Layouts, QuantizedTensor
from tensorkeep.quantized.computing._reader import NumbersReader
from tensorkeep.quantized.families import BY_NAME
from tensorkeep.tensors import LazyTensor, LazyTensors, TensorView
from tensorkeep.tensors.readers import cast_target


def with_numbers(tensors: LazyTensors, dtype: Any, config: Mapping[str, Any] | None = None) -> LazyTensors:
    """Do as `dequantize`, except that ggml's blocks stay; return the same if there are no others."""
    target = cast_target(dtype)
    found = layouts(tensors, config)
    for finding in found.broken.values():
        error = UnsupportedError if finding.kind == "unsupported" else FormatError
        raise error(
            finding.message, path=tensors.path, tensor=finding.tensor, expected=finding.expected, found=finding.found
        )
    views = {
        name: _numbers_of(tensors, quantized, target)
        for name, quantized in found.tensors.items()
        if quantized.layout in BY_NAME
    }
    if not views:
        return tensors
    metadata = tensors.metadata if tensors.has_metadata else None
    return TensorView(_in_order(tensors, found, views), path=tensors.path, metadata=metadata, beside=tensors)


def part_names(lazy: LazyTensor) -> tuple[str, ...]:
    """Return the names of the stored tensors that a lazy one is computed from, its own if it is stored."""
    reader = lazy.reader
    return tuple(part.name for part in reader.parts.values()) if isinstance(reader, NumbersReader) else (lazy.name,)


def _numbers_of(tensors: LazyTensors, quantized: QuantizedTensor, dtype: DType) -> LazyTensor:
    """Return the numbers of a quantized tensor as a lazy one."""
    parts = {role: tensors[name] for role, name in quantized.parts.items()}
    in_numpy = {role: part.with_framework("numpy") for role, part in parts.items()}
    reader = NumbersReader(quantized, parts, in_numpy, dtype)
    entry = TensorEntry(dtype.name, quantized.shape, (0, dtype.nbytes(prod(quantized.shape))))
    return LazyTensor(quantized.name, entry, reader, library=parts["data"].library)


def _in_order(tensors: LazyTensors, found: Layouts, views: Mapping[str, LazyTensor]) -> dict[str, LazyTensor]:
    """Put each tensor in the place of the first of its parts."""
    whole_of = {part: name for name, quantized in found.tensors.items() for part in quantized.parts.values()}
    ordered: dict[str, LazyTensor] = {}
    for stored, lazy in tensors.items():
        name = whole_of.get(stored)
        if name is None or name not in views:
            ordered[stored] = lazy
        else:
            ordered.setdefault(name, views[name])
    return ordered

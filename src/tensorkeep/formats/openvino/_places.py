"""Where the elements of constants are in the file beside a model. Pure."""

from __future__ import annotations

import re
from math import prod
from typing import Final

from tensorkeep.errors import FormatError
from tensorkeep.formats._contents import TensorPlace
from tensorkeep.formats.onnx import NarrowIntegers
from tensorkeep.formats.openvino._model import Constant
from tensorkeep.limits import MAX_I64, MAX_LISTED_NDIM
from tensorkeep.transport import ByteSource

_DTYPES: Final = {
    "boolean": "BOOL",
    "bf16": "BF16",
    "f16": "F16",
    "f32": "F32",
    "f64": "F64",
    "f8e4m3": "F8_E4M3",
    "f8e5m2": "F8_E5M2",
    "f8e8m0": "F8_E8M0",
    **{f"{sign}{bits}": f"{sign.upper()}{bits}" for sign in "iu" for bits in (8, 16, 32, 64)},
}
_BITS: Final = {"i4": 4, "u4": 4, "u2": 2}
"""Integers that are widened to a byte each: the first is in the lowest bits of a byte."""

_is_number = re.compile(r"\d{1,19}").fullmatch


def place_constant(name: str, constant: Constant, weights: ByteSource) -> TensorPlace | str:
    """Return where a constant is, or what it is if no tensor can show it."""
    shape, start, nbytes = _numbers_of(name, constant)
    n_elements = prod(shape)
    dtype, bits = _DTYPES.get(constant.element_type), _BITS.get(constant.element_type)
    if dtype is None and bits is None:
        return f"a constant of type {constant.element_type!r:.50} and shape {list(shape)!r:.100}"
    if bits is None:
        if not n_elements:
            return TensorPlace(dtype or "", shape, 0, source=weights)
        return TensorPlace(dtype or "", shape, start, nbytes, source=weights)
    stored_nbytes = -(-n_elements * bits // 8)
    if n_elements and stored_nbytes != nbytes:
        raise FormatError(
            f"tensor `{name}` has another size than its type and shape say",
            tensor=name,
            expected=f"{stored_nbytes:,} bytes",
            found=f"{nbytes:,}",
        )
    if n_elements and start + nbytes > weights.nbytes:
        raise FormatError(
            f"the file ends before tensor `{name}` does",
            path=weights.name,
            tensor=name,
            expected=f"at least {start + nbytes:,} bytes",
            found=f"{weights.nbytes:,}",
        )
    is_signed = constant.element_type.startswith("i")
    numbers = NarrowIntegers(weights, start, n_elements, bits, is_signed=is_signed)
    return TensorPlace("I8" if is_signed else "U8", shape, 0, source=numbers)


def _numbers_of(name: str, constant: Constant) -> tuple[tuple[int, ...], int, int]:
    """Return shape, first byte and bytes."""
    extents = [text.strip() for text in constant.shape.split(",")] if constant.shape.strip() else []
    texts = (*extents, constant.offset, constant.nbytes)
    if len(extents) > MAX_LISTED_NDIM or not all(map(_is_number, texts)):
        found = f"shape {constant.shape!r:.50}, offset {constant.offset!r:.50}, size {constant.nbytes!r:.50}"
        raise FormatError(f"the place of tensor `{name}` is not numbers", tensor=name, found=found)
    shape = tuple(map(int, extents))
    start, nbytes = int(constant.offset), int(constant.nbytes)
    if max(start, nbytes, prod(extent or 1 for extent in shape)) > MAX_I64:
        raise FormatError(
            f"no tensor has the shape or place of tensor `{name}`", tensor=name, found=constant.shape[:50]
        )
    return shape, start, nbytes

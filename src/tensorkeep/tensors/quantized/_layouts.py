"""The bytes of ggml's blocks as structured dtypes, and their fields by the names that ggml gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import numpy as np

from tensorkeep.arrays import Arithmetic

Array: TypeAlias = Any
"""An array of NumPy, or a tensor on a device: formulas are the same for both."""

Floats: TypeAlias = Any
"""The same, of F32."""

LAYOUTS: Final[dict[str, np.dtype[Any]]] = {
    name: np.dtype([(field, code, count) if count > 1 else (field, code) for field, code, count in fields])
    for name, fields in {
        "Q1_0": [("d", "<f2", 1), ("qs", "u1", 16)],
        "Q2_0": [("d", "<f2", 1), ("qs", "u1", 16)],
        "Q4_0": [("d", "<f2", 1), ("qs", "u1", 16)],
        "Q4_1": [("d", "<f2", 1), ("m", "<f2", 1), ("qs", "u1", 16)],
        "Q5_0": [("d", "<f2", 1), ("qh", "u1", 4), ("qs", "u1", 16)],
        "Q5_1": [("d", "<f2", 1), ("m", "<f2", 1), ("qh", "u1", 4), ("qs", "u1", 16)],
        "Q8_0": [("d", "<f2", 1), ("qs", "i1", 32)],
        "Q8_K": [("d", "<f4", 1), ("qs", "i1", 256), ("bsums", "<i2", 16)],
        "Q2_K": [("scales", "u1", 16), ("qs", "u1", 64), ("d", "<f2", 1), ("dmin", "<f2", 1)],
        "Q3_K": [("hmask", "u1", 32), ("qs", "u1", 64), ("scales", "u1", 12), ("d", "<f2", 1)],
        "Q4_K": [("d", "<f2", 1), ("dmin", "<f2", 1), ("scales", "u1", 12), ("qs", "u1", 128)],
        "Q5_K": [("d", "<f2", 1), ("dmin", "<f2", 1), ("scales", "u1", 12), ("qh", "u1", 32), ("qs", "u1", 128)],
        "Q6_K": [("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), ("d", "<f2", 1)],
        "TQ1_0": [("qs", "u1", 48), ("qh", "u1", 4), ("d", "<f2", 1)],
        "TQ2_0": [("qs", "u1", 64), ("d", "<f2", 1)],
        "MXFP4": [("e", "u1", 1), ("qs", "u1", 16)],
        "NVFP4": [("d", "u1", 4), ("qs", "u1", 32)],
        "IQ2_XXS": [("d", "<f2", 1), ("qs", "<i4", 16)],
        "IQ2_XS": [("d", "<f2", 1), ("qs", "<i2", 32), ("scales", "u1", 8)],
        "IQ2_S": [("d", "<f2", 1), ("qs", "u1", 32), ("signs", "u1", 32), ("qh", "u1", 8), ("scales", "u1", 8)],
        "IQ3_XXS": [("d", "<f2", 1), ("qs", "u1", 64), ("scales", "<i4", 8)],
        "IQ3_S": [("d", "<f2", 1), ("qs", "u1", 64), ("qh", "u1", 8), ("signs", "u1", 32), ("scales", "u1", 4)],
        "IQ1_S": [("d", "<f2", 1), ("qs", "u1", 32), ("qh", "<i2", 8)],
        "IQ1_M": [("qs", "u1", 32), ("qh", "u1", 16), ("scales", "<i2", 4)],
        "IQ4_NL": [("d", "<f2", 1), ("qs", "u1", 16)],
        "IQ4_XS": [("d", "<f2", 1), ("scales_h", "u1", 2), ("scales_l", "u1", 4), ("qs", "u1", 128)],
    }.items()
}
"""Type to the layout of one block."""


Blocks: TypeAlias = Mapping[str, Any]
"""Field to its bytes or numbers, one row for each block: a structured array of NumPy, or a dict of tensors."""


def scale(ops: Arithmetic, blocks: Blocks, field: str = "d") -> Floats:
    """Return a number of each block, as a column."""
    return ops.floats(blocks[field])[:, None]


_SHIFTS: Final = {bits: np.arange(0, 8, bits, dtype=np.uint8)[:, None] for bits in (1, 2, 4)}


def fields(ops: Arithmetic, packed: Array, bits: int, n_apart: int) -> Array:
    """Take bytes apart into numbers of a few bits.

    Of each run of `n_apart` bytes first come the lowest bits of all, then the next ones. ggml packs numbers in this
    order, so that one instruction unpacks many.
    """
    n = len(packed)
    apart = packed.reshape(n, -1, 1, n_apart) >> ops.constant(_SHIFTS[bits])
    apart &= (1 << bits) - 1
    return apart.reshape(n, -1)


def signed(ops: Arithmetic, numbers: Array, zero: int) -> Floats:
    """Return unsigned numbers less the one that means zero."""
    return ops.floats(ops.view(numbers, "int8") - zero)

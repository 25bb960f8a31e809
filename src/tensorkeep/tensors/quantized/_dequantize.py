"""Blocks to numbers, bit for bit as the `gguf` package and ggml compute them in F32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import Arithmetic, numpy_arithmetic
from tensorkeep.tensors.quantized import _grids, _k, _plain, _tables
from tensorkeep.tensors.quantized._layouts import LAYOUTS, Blocks, Floats

DEQUANTIZED: Final[dict[str, Callable[[Arithmetic, Blocks], Floats]]] = {
    "Q1_0": _plain.q1_0,
    "Q2_0": _plain.q2_0,
    "Q4_0": _plain.q4_0,
    "Q4_1": _plain.q4_1,
    "Q5_0": _plain.q5_0,
    "Q5_1": _plain.q5_1,
    "Q8_0": _plain.q8,
    "Q8_K": _plain.q8,
    "TQ1_0": _plain.tq1_0,
    "TQ2_0": _plain.tq2_0,
    "Q2_K": _k.q2_k,
    "Q3_K": _k.q3_k,
    "Q4_K": _k.q4_k,
    "Q5_K": _k.q5_k,
    "Q6_K": _k.q6_k,
    "MXFP4": _tables.mxfp4,
    "NVFP4": _tables.nvfp4,
    "IQ4_NL": _tables.iq4_nl,
    "IQ4_XS": _tables.iq4_xs,
    "IQ2_XXS": _grids.iq2_xxs,
    "IQ2_XS": _grids.iq2_xs,
    "IQ2_S": _grids.iq2_s,
    "IQ3_XXS": _grids.iq3_xxs,
    "IQ3_S": _grids.iq3_s,
    "IQ1_S": _grids.iq1_s,
    "IQ1_M": _grids.iq1_m,
}
"""Type to function of its blocks. Q8_1 is missing: ggml has no such function, since only its kernels make Q8_1."""


def dequantize(type_name: str, blocks: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Return the numbers in whole blocks.

    Random bytes may be scales that are infinite or NaN; then so are the numbers.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        found: Any = blocks.view(LAYOUTS[type_name]).reshape(-1)
        return np.asarray(DEQUANTIZED[type_name](numpy_arithmetic(), found).reshape(-1))


def dequantize_by(ops: Arithmetic, type_name: str, rows: Any) -> Any:
    """Return the numbers in whole blocks on a device: a tensor of U8, one row for each block."""
    found: dict[str, Any] = {}
    for field, (dtype, start, *_) in (LAYOUTS[type_name].fields or {}).items():
        numbers = ops.view(rows[:, start : start + dtype.itemsize], dtype.base.name)
        found[field] = numbers.reshape(len(rows), *dtype.shape)
    return DEQUANTIZED[type_name](ops, found).reshape(-1)

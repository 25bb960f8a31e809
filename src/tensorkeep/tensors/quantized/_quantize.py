"""Numbers to blocks of Q8_0, bit for bit as the `gguf` package makes them."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tensorkeep.tensors.quantized._layouts import LAYOUTS

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

_LARGEST: Final = 127


def quantize_q8_0(numbers: Floats) -> Bytes:
    """Return the blocks of numbers in runs of 32: each the largest magnitude / 127, and multiples of it."""
    rows = numbers.reshape(-1, 32)
    with np.errstate(all="ignore"):
        d = np.abs(rows).max(axis=1, keepdims=True) / np.float32(_LARGEST)
        multiples = rows * np.where(d == 0, np.float32(0), np.float32(1) / d)
        blocks = np.empty(len(rows), LAYOUTS["Q8_0"])
        blocks["d"] = d[:, 0].astype(np.float16)
        blocks["qs"] = _rounded(multiples).astype(np.int8)
    return blocks.view(np.uint8)


def _rounded(numbers: Floats) -> Floats:
    """Round to nearest, halves away from zero."""
    magnitudes = np.abs(numbers)
    whole = np.floor(magnitudes)
    return np.asarray(np.sign(numbers) * (whole + np.floor(2 * (magnitudes - whole))))

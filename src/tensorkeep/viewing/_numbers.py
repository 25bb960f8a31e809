"""Numbers as JSON and JavaScript have them. Pure."""

from __future__ import annotations

from base64 import b64encode
from math import isfinite, isnan
from typing import Any, Final

import numpy as np
import numpy.typing as npt

MAX_EXACT: Final = 2**53 - 1
"""Largest integer up to which JavaScript's numbers have all."""


def number(value: float | None) -> Any:
    """Return a number; what JavaScript lacks as text, which its `Number` understands."""
    if value is None:
        return None
    if isinstance(value, int):
        return value if -MAX_EXACT <= value <= MAX_EXACT else str(value)
    if isfinite(value):
        return float(value)
    return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"


def packed(numbers: npt.NDArray[Any]) -> str:
    """Return numbers as base64 of little-endian float64; JavaScript reads it as a Float64Array."""
    return b64encode(np.ascontiguousarray(numbers, "<f8").tobytes()).decode()

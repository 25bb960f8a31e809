"""JSON as JavaScript reads it: numbers that it lacks, many numbers, and texts that UTF-8 lacks. Pure."""

from __future__ import annotations

import json
from base64 import b64encode
from math import isfinite, isnan
from typing import Any, Final

import msgspec
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


def encoded(value: Any) -> bytes:
    """Return a value as JSON. Half of a surrogate pair, which names in pickles may have, is written as an escape."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()

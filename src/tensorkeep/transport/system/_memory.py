"""Freed memory that the C library keeps for itself."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any


def give_back_freed_memory() -> None:
    """Give what was freed to the system; does nothing where the C library has no such call."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None

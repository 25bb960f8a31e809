"""Memory that is measured where no other test can use any: in a process of its own."""

from __future__ import annotations

import multiprocessing
import tracemalloc
from collections.abc import Callable
from typing import Any

__all__ = ["with_peak"]


def with_peak(function: Callable[..., Any], *args: Any) -> tuple[Any, int]:
    """Return what a function returns, and the most bytes that Python and NumPy had allocated in it at a time.

    Args:
        function: One that another process can import.
        *args: What it is called with.
    """
    with multiprocessing.get_context("spawn").Pool(1) as process:
        result: tuple[Any, int] = process.apply(_traced, (function, args))
        return result


def _traced(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, int]:
    tracemalloc.start()
    result = function(*args)
    return result, tracemalloc.get_traced_memory()[1]

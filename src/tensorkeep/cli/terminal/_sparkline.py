"""A histogram as a few characters. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_BARS: Final = "▁▂▃▄▅▆▇█"
_ASCII_BARS: Final = ".:-=+*%#"
"""For terminals without UTF-8."""


def sparkline(counts: Sequence[int], n_chars: int, *, ascii_only: bool = False) -> str:
    """Draw counts as bars, a space where there is nothing; neighbors are added up if there are too many."""
    n_joined = -(-len(counts) // n_chars) or 1
    joined = [sum(counts[start : start + n_joined]) for start in range(0, len(counts), n_joined)]
    bars, highest = _ASCII_BARS if ascii_only else _BARS, max(joined, default=0)
    return "".join(bars[-(-count * len(bars) // highest) - 1] if count else " " for count in joined)

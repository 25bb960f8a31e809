"""Two phrases of messages: "3 tensors", and "a, b and 3 more"."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice


def counted(n: int, noun: str) -> str:
    """Return "1 tensor" or "2,000 tensors"."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def listed(texts: Iterable[str], at_most: int = 5, separator: str = ", ") -> str:
    """Return "a, b and 3 more", or an empty text for nothing."""
    remaining = iter(texts)
    shown = separator.join(islice(remaining, at_most))
    n_more = sum(1 for _ in remaining)
    return f"{shown} and {n_more:,} more" if n_more else shown

"""Two phrases of messages: "3 tensors", and "a, b and 3 more"."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

_Item = TypeVar("_Item")


def counted(n: int, noun: str) -> str:
    """Return "1 tensor" or "2,000 tensors"."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def listed(
    items: Iterable[_Item], at_most: int = 5, separator: str = ", ", *, describe: Callable[[_Item], str] = str
) -> str:
    """Return "a, b and 3 more", or an empty text for nothing; only the items that are shown are described."""
    remaining = iter(items)
    shown = separator.join(map(describe, islice(remaining, at_most)))
    n_more = sum(1 for _ in remaining)
    return f"{shown} and {n_more:,} more" if n_more else shown


def has_path(text: str, path: str) -> bool:
    """Whether a message has a path already; a word such as `checkpoint` may be in it by chance."""
    return text.endswith(f": {path}") or (len(path) > 2 and not path.isalnum() and path in text)

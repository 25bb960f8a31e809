"""Values in error messages: always short, since the repr of a hostile nested value may never end."""

from __future__ import annotations

from typing import Any

from tensorkeep.formats.pickles.values._records import Unknown

_MAX_LENGTH = 80
_MAX_ITEMS = 6


def short_repr(value: Any) -> str:
    """Return a bounded repr that looks at one level of a list or tuple only."""
    if type(value) not in {tuple, list}:
        return _short(value)
    items = ", ".join(_short(item) for item in value[:_MAX_ITEMS])
    return f"({items}, …)" if len(value) > _MAX_ITEMS else f"({items},)" if len(value) == 1 else f"({items})"


def _short(value: Any) -> str:
    if type(value) in {str, bytes}:
        return repr(value[:_MAX_LENGTH])
    if type(value) in {int, float, bool, type(None)}:
        return repr(value)[:_MAX_LENGTH]
    return repr(value) if isinstance(value, Unknown) else type(value).__name__

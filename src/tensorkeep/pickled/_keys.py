"""Keys of dicts as parts of dotted names."""

from __future__ import annotations

from typing import Any, Final

from tensorkeep.formats.pickles import TensorRecord, Unknown, shown
from tensorkeep.limits import MAX_NAME_LENGTH

__all__ = ["PLAIN", "joined", "key_text"]

PLAIN: Final = frozenset({str, int, float, bool, bytes, type(None)})
"""Types of values that hold nothing."""


def joined(name: str, part: str) -> str:
    """Return a dotted name, cut where it is longer than any honest one.

    Args:
        name: Of what holds the part; empty for the whole value.
        part: What it is called in there.
    """
    return (f"{name}.{part}" if name else part)[:MAX_NAME_LENGTH]


def key_text(key: Any) -> str:
    """Return what stands for a key in a dotted name.

    Args:
        key: Of a dict in a pickle.

    Returns:
        A text itself; the name of a class or function; else the key in words, cut where it is long.
    """
    if type(key) is str:
        return key
    if isinstance(key, Unknown):
        return key.qualified_name
    if type(key) is TensorRecord:
        return f"tensor {key.storage.key}" if key.storage else "tensor"
    return shown(key)

"""Keys of dicts as parts of dotted names."""

from __future__ import annotations

from typing import Any, Final

from tensorkeep.formats.pickles import TensorRecord, Unknown, shown

__all__ = ["PLAIN", "key_text"]

PLAIN: Final = frozenset({str, int, float, bool, bytes, type(None)})
"""Types of values that hold nothing."""


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

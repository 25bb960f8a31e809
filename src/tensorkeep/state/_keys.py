"""Keys of dicts and items of sets: their text in dotted names, and a guard against slow ones.

Hashes of numbers are predictable, so an attacker can choose numbers that all collide in a dict: n of them take n * n
steps. Hashes of text and bytes have a new random seed in each process. Saving and loading have the same limits, so
what was saved can be loaded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime, time
from enum import Enum
from pathlib import PurePath
from types import NoneType
from typing import Any, Final

import msgspec

from tensorkeep.errors import LimitError
from tensorkeep.limits import MAX_COLLIDING_KEYS, MAX_NAME_LENGTH, MAX_NUMBER_KEYS
from tensorkeep.state._values import NamedData, Node

_N_SHOWN: Final = 100
_SAFE: Final = frozenset({str, bytes, bool, NoneType})
_TEXTS: Final = frozenset({str, bytes})
_SEEDED: Final = (NamedData, Enum, date, PurePath)
_SAFE_HASH: Final = 2**24
"""Distinct hashes below this are harmless: a dict places them in one or two steps."""


def joined(path: str, text: str) -> str:
    """Return a dotted name, cut if it is longer than any honest one."""
    return f"{path}.{text}"[:MAX_NAME_LENGTH] if path else text[:MAX_NAME_LENGTH]


def key_text(node: Node) -> str:
    """Return the text for a key in a dotted name."""
    if type(node) is str:
        return node
    if type(node) is list:
        return ",".join(map(key_text, node[1:]))[:MAX_NAME_LENGTH]
    return msgspec.json.encode(node).decode()


def text_of_key(key: Any) -> str:
    """Return a key itself as text: equal for `0` and `"0"`, which libraries write for each other."""
    if type(key) is str:
        return key
    try:
        return str(key)[:MAX_NAME_LENGTH]
    except ValueError:  # Python's limit on the digits of an integer
        return f"{type(key).__name__} {hash(key)}"


def words_for(path: str) -> str:
    """Return words for a place in a tree, for error messages."""
    if not path:
        return "the value itself"
    if len(path) > 2 * _N_SHOWN:
        path = f"{path[:_N_SHOWN]} … {path[-_N_SHOWN:]}"
    return repr(path)


def is_safe_key(key: Any) -> bool:
    """Say whether a key needs no check by a `KeyGuard`."""
    kind = type(key)
    return kind in _SAFE or (kind is int and -_SAFE_HASH < key < _SAFE_HASH)


class KeyGuard:
    """Checks keys whose hashes an attacker may have chosen; one guard serves all containers of a tree."""

    def __init__(self) -> None:
        self._n_numbers = 0

    def check(self, keys: Sequence[Any], path: str) -> None:
        """Refuse keys that would make a container slow."""
        hashes = list(map(hash, keys))
        n_numbers = sum(
            not (-_SAFE_HASH < value < _SAFE_HASH or _is_seeded(key)) for key, value in zip(keys, hashes, strict=True)
        )
        self._n_numbers += n_numbers
        if (
            n_numbers > MAX_NUMBER_KEYS
            or self._n_numbers > 10 * MAX_NUMBER_KEYS
            or _most_equal(hashes) > MAX_COLLIDING_KEYS
        ):
            raise LimitError(
                f"too many keys of {words_for(path)} are large numbers or tuples, whose hashes can collide",
                expected=f"at most {MAX_NUMBER_KEYS:,} in one dict or set, {MAX_COLLIDING_KEYS} with one hash",
                hint="Keep them in a list or an array, or make them texts",
            )


def _most_equal(hashes: list[int]) -> int:
    return max(Counter(hashes).values(), default=0)


def _is_seeded(key: Any) -> bool:
    """Say whether a key's hash depends on the hash of a text, which is unpredictable."""
    if isinstance(key, tuple):
        return any(type(item) in _TEXTS for item in key)
    if isinstance(key, datetime | time):
        return key.tzinfo is None
    return isinstance(key, _SEEDED)

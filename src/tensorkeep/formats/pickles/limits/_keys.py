"""Keys of dicts and members of sets: only those that are quick to hash and do not make the container slow.

The hash of a tuple visits everything in it, shared parts again and again. Of numbers anybody can construct a million
with the same hash. Texts and bytes are safe: their hashes have a random seed in every process.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

from tensorkeep.errors import LimitError, PickleError
from tensorkeep.formats.pickles.values import (
    ArrayRecord,
    DtypeRecord,
    Label,
    Name,
    StorageRecord,
    TensorRecord,
    Unknown,
)
from tensorkeep.limits import MAX_ALL_KEY_NODES, MAX_COLLIDING_KEYS, MAX_KEY_NODES, MAX_NUMBER_KEYS

_TEXTS = frozenset({str, bytes, Label})
_NUMBERS = frozenset({
    int,
    float,
    complex,
    bool,
    type(None),
    date,
    datetime,
    time,
    timedelta,
    timezone,
    Decimal,
    range,
})
_NESTED = frozenset({tuple, frozenset})
_BY_IDENTITY = frozenset({ArrayRecord, DtypeRecord, Name, StorageRecord, TensorRecord, Unknown})
_SIMPLE = _TEXTS | _NUMBERS | _BY_IDENTITY
_FREE = _TEXTS | _BY_IDENTITY | {bool}
_SAFE_INT_BITS = 24
"""Integers are their own hashes; longer ones can be chosen to collide in a dict."""


class KeyGuard:
    """Checks keys before they are hashed; one guard per file."""

    def __init__(self, max_number_keys: int = MAX_NUMBER_KEYS) -> None:
        self._max_number_keys = max_number_keys
        self._counts: dict[int, _Counts] = {}
        self._n_nodes = 0
        self._n_numbers = 0

    def check(self, container: object, keys: Iterable[Any]) -> None:
        """Refuse keys that are harmful to hash."""
        for key in keys:
            kind = type(key)
            if kind in _FREE or (kind is int and key.bit_length() <= _SAFE_INT_BITS):
                continue
            self._n_nodes += _count_nodes(key)
            if self._n_nodes > MAX_ALL_KEY_NODES:
                raise LimitError("nested keys are too large in total", expected=f"{MAX_ALL_KEY_NODES:,} values")
            self._count(container, key)

    def _count(self, container: object, key: Hashable) -> None:
        counts = self._counts.get(id(container))
        if counts is None:
            counts = self._counts[id(container)] = _Counts(container)
        n_equal = counts.n_with_hash.get(hash(key), 0) + 1
        counts.n_with_hash[hash(key)] = n_equal
        if type(key) is not tuple or _TEXTS.isdisjoint(map(type, key)):  # nobody can predict the hash of a text
            counts.n_numbers += 1
            self._n_numbers += 1
        if (
            n_equal > MAX_COLLIDING_KEYS
            or counts.n_numbers > self._max_number_keys
            or self._n_numbers > 10 * self._max_number_keys
        ):
            raise LimitError(
                "too many keys are large numbers or tuples, which can be chosen to collide",
                expected=f"at most {MAX_COLLIDING_KEYS} with one hash, {self._max_number_keys:,} in one dict",
                hint="If you trust the file, raise PickleLimits.max_number_keys",
            )


class _Counts:
    """Counts for one container. Keeps it alive, so that no other container gets its id."""

    __slots__ = ("container", "n_numbers", "n_with_hash")

    def __init__(self, container: object) -> None:
        self.container = container
        self.n_numbers = 0
        self.n_with_hash: dict[int, int] = {}


def _count_nodes(key: Any) -> int:
    """Count the values that hashing a key would visit."""
    waiting = [key]
    n_nodes = 0
    while waiting:
        node = waiting.pop()
        kind = type(node)
        n_nodes += 1
        if kind in _NESTED:
            if n_nodes + len(waiting) + len(node) > MAX_KEY_NODES:
                raise LimitError("a key of a dict is nested too deeply", expected=f"at most {MAX_KEY_NODES:,} values")
            waiting.extend(node)
        elif kind not in _SIMPLE:
            raise PickleError(
                "a value cannot be a key", expected="text, numbers, tuples of them", found=kind.__name__
            )
    return n_nodes

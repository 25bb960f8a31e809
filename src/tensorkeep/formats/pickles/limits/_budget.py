"""The budget of one pickle. Callers can raise each bound; `tensorkeep.limits` has the reasons."""

from __future__ import annotations

from typing import Any

import msgspec

from tensorkeep import limits
from tensorkeep.errors import LimitError
from tensorkeep.formats.pickles.values import Payload

_ITEM_NBYTES = 16
"""Bytes of memory per item of a copied list or tuple, roughly."""

_PAIR_NBYTES = 24
"""Bytes of memory per item of a copied dict or set, at least; an honest file has 12 bytes for each."""


class PickleLimits(msgspec.Struct, frozen=True):
    """The bounds of one pickle.

    Attributes:
        max_nbytes: Bytes of the pickle, without the tensors' data.
        max_opcodes: Opcodes executed.
        max_nodes: Values that a walk through the result visits; shared ones count once per visit.
        max_nodes_per_byte: The same for each byte of the pickle; 500,000 visits are always allowed.
        max_depth: Depth of nested containers.
        max_number_keys: Keys of one dict or set that are tuples, or numbers of more than 24 bits.
    """

    max_nbytes: int = limits.MAX_PICKLE_NBYTES
    max_opcodes: int = limits.MAX_PICKLE_OPCODES
    max_nodes: int = limits.MAX_GRAPH_NODES
    max_nodes_per_byte: int = limits.MAX_GRAPH_NODES_PER_BYTE
    max_depth: int = limits.MAX_GRAPH_DEPTH
    max_number_keys: int = limits.MAX_NUMBER_KEYS

    def max_nodes_of(self, nbytes: int) -> int:
        """Return how many values a walk may visit in a pickle of `nbytes` bytes."""
        return min(self.max_nodes, max(limits.MIN_GRAPH_NODES, self.max_nodes_per_byte * nbytes))


DEFAULT_LIMITS = PickleLimits()


class Allowance:
    """Memory left for copies and containers, which a few bytes of a pickle can request again and again.

    An honest file copies each of its texts once, so the allowance grows with the bytes that are read.
    """

    def __init__(self) -> None:
        self._left = limits.MIN_ALLOWANCE_NBYTES
        self._n_sets = 0

    def grow(self, nbytes: int) -> None:
        """Allow copies of some more bytes of the pickle."""
        self._left += limits.ALLOWANCE_PER_BYTE * nbytes

    def spend(self, nbytes: int) -> None:
        """Use up a part of the allowance."""
        self._left -= nbytes
        if self._left < 0:
            raise LimitError(
                "the pickle copies more than it contains",
                expected=f"at most {limits.ALLOWANCE_PER_BYTE} times its size",
                found="more",
            )

    def count_set(self) -> None:
        """Count a set: one byte of the pickle makes one of 200 bytes."""
        self._n_sets += 1
        if self._n_sets > limits.MAX_PICKLED_SETS:
            raise LimitError("the pickle has too many sets", expected=f"at most {limits.MAX_PICKLED_SETS:,}")

    def spend_on(self, values: tuple[Any, ...]) -> None:
        """Use up what a copy of some values takes, tuples among them one level deep."""
        nbytes = 0
        for value in values:
            weight = _WEIGHTS.get(type(value))
            if weight is not None and len(value) > 1:
                nbytes += weight * len(value)
            if type(value) is tuple:
                for part in value:
                    weight = _WEIGHTS.get(type(part))
                    if weight is not None:
                        nbytes += weight * len(part)
        self.spend(nbytes)


_WEIGHTS: dict[type, int] = {
    **dict.fromkeys((str, bytes, bytearray, Payload), 1),
    **dict.fromkeys((list, tuple), _ITEM_NBYTES),
    **dict.fromkeys((dict, set, frozenset), _PAIR_NBYTES),
}

"""Two checkpoints, tensor by tensor: which differ, and how far one has moved from the other."""

from __future__ import annotations

from itertools import count
from time import perf_counter
from typing import Any, Final, Literal

import msgspec

from tensorkeep.checkpoint import Compared, DataDiff, TensorDiff, compare_tensors, diff_apart_from_tensors
from tensorkeep.kinds import Opened
from tensorkeep.viewing._json import number
from tensorkeep.viewing._work import Outbox

_MAX_TEXTS: Final = 10_000
"""Values besides tensors that are listed."""

Status = Literal["equal", "differs", "dtype", "shape", "bits", "unread"]
"""`dtype`: another one, but the numbers are compared; `bits`: only payloads of NaNs or signs of zeros differ;
`unread`: they were not compared: the dtype has no numbers, or a tensor cannot be read."""

_Row = tuple[int, int, Status, Any, Any, Any, Any, Any]


class Comparison:
    """Two open checkpoints.

    Attributes:
        a: The first.
        b: The second.
        places_a: Name to place in the first.
        places_b: Name to place in the second.
    """

    def __init__(self, a: Opened, b: Opened, places_a: dict[str, int], places_b: dict[str, int]) -> None:
        self.a = a
        self.b = b
        self.places_a = places_a
        self.places_b = places_b

    def run(self, outbox: Outbox) -> dict[str, Any]:
        """Compare them, with a row for each tensor that both have."""
        begin = perf_counter()
        shared = [name for name in self.places_a if name in self.places_b]
        n_equal = count()

        def take(each: Compared) -> None:
            if each.difference is None:
                next(n_equal)
            outbox.add(self._row(each))

        compare_tensors(self.a, self.b, shared, take, outbox.progress)
        data, ties = diff_apart_from_tensors(self.a, self.b, shared)
        n = next(n_equal)
        return {
            "only_in_a": [t for name, t in self.places_a.items() if name not in self.places_b],
            "only_in_b": [t for name, t in self.places_b.items() if name not in self.places_a],
            "n_equal": n,
            "n_different": len(shared) - n,
            "data": _texts(data),
            "ties": _texts(ties),
            "seconds": perf_counter() - begin,
        }

    def _row(self, each: Compared) -> _Row:
        places = self.places_a[each.name], self.places_b[each.name]
        found = None if each.difference is None else each.difference.numbers
        if found is None:
            return *places, _status(each.difference), None, None, None, None, None
        numbers = map(number, (found.norm, found.relative, found.max_abs, found.n_different, found.norm_a))
        norm, relative, max_abs, n_different, norm_a = numbers
        return *places, _status(each.difference), norm, relative, max_abs, n_different, norm_a


def _status(found: TensorDiff | None) -> Status:
    """Say how two tensors differ."""
    if found is None:
        return "equal"
    if found.shape_a != found.shape_b:
        return "shape"
    if found.numbers is None:
        return "unread"
    if found.dtype_a != found.dtype_b:
        return "dtype"
    return "differs" if found.numbers.n_different else "bits"


def _texts(found: tuple[DataDiff, ...]) -> list[Any]:
    return [msgspec.to_builtins(each) for each in found[:_MAX_TEXTS]]

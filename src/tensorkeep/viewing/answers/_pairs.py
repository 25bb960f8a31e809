"""Two tensors of one shape, number by number: how far one has moved from the other."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, prod, sqrt
from typing import Any, Final

import msgspec
import numpy as np

from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.errors import UnsupportedError
from tensorkeep.measuring import Facts, TensorStatistics, merged, tally_for
from tensorkeep.parallel import ProgressMeter
from tensorkeep.tensors import LazyTensor
from tensorkeep.viewing._json import number
from tensorkeep.viewing.answers._reading import Numbers, as_numbers, change_between, numeric
from tensorkeep.viewing.answers._statistics import members

_RUN_NBYTES: Final = 4 * 2**20
"""Bytes that are read at a time; on a server a request."""

_BLOCK: Final = 2**15
"""Elements computed at a time, in the L2 cache."""


class Change(msgspec.Struct, frozen=True):
    """How far one tensor has moved from another.

    Attributes:
        norm: Euclidean norm of the difference, as far as it is finite.
        norm_a: Euclidean norm of the first, as far as it is finite.
        max_abs: Largest magnitude of a difference; infinite if only one of two numbers is.
        n_different: Elements that differ as numbers: NaN equals NaN, and 0 equals -0.
    """

    norm: float
    norm_a: float
    max_abs: float
    n_different: int

    @property
    def relative(self) -> float:
        """The norm of the difference for each unit of the first one's norm."""
        if not self.norm:
            return 0.0
        return self.norm / self.norm_a if self.norm_a else inf


class ChangeTally:
    """Sums over the elements of two tensors."""

    def __init__(self) -> None:
        self._squares = self._squares_a = self._max_abs = 0.0
        self._n_different = 0

    def add(self, a: Numbers, change: Numbers) -> None:
        """Take some numbers of the first, and how far the second's are from them."""
        squares, squares_a = _squares(change), _squares(a)
        self._n_different += int(np.count_nonzero(change))
        if np.isfinite(squares) and np.isfinite(squares_a):
            self._max_abs = max(self._max_abs, float(change.max()), -float(change.min()))
        else:
            self._max_abs = float(np.fmax(self._max_abs, np.fmax.reduce(np.abs(change))))
            squares, squares_a = _finite_squares(change), _finite_squares(a)
        self._squares += squares
        self._squares_a += squares_a

    def result(self) -> Change:
        """Return the result."""
        return Change(sqrt(self._squares), sqrt(self._squares_a), self._max_abs, self._n_different)


def change_of(a: LazyTensor, b: LazyTensor, meter: ProgressMeter) -> Change:
    """Return how far b has moved from a."""
    tally = ChangeTally()
    for numbers, change in _blocks(a, b, meter):
        tally.add(numbers, change)
    return tally.result()


def difference(a: LazyTensor, b: LazyTensor, meter: ProgressMeter) -> dict[str, Any]:
    """Return the statistics of b - a as JSON has them."""
    tally, changes = tally_for(ALL_BY_NAME["F64"]), ChangeTally()
    for numbers, change in _blocks(a, b, meter):
        tally.add(change)
        changes.add(numbers, change)
    found: TensorStatistics = merged([tally], Facts(a.name, "F64", a.shape, prod(a.shape)))
    change_in_all = changes.result()
    return {
        **members(found),
        "norm_a": number(change_in_all.norm_a),
        "relative": number(change_in_all.relative),
        "n_different": change_in_all.n_different,
    }


def refuse_other_shape(a: LazyTensor, b: LazyTensor) -> None:
    """Refuse two tensors that cannot be compared element by element."""
    if a.shape != b.shape:
        raise UnsupportedError(
            "the tensors have different shapes", tensor=a.name, expected=str(list(a.shape)), found=str(list(b.shape))
        )


def _blocks(a: LazyTensor, b: LazyTensor, meter: ProgressMeter) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield blocks of a's numbers, and b's without a's; elements that are equal, NaN or infinite too, give 0."""
    a, b = numeric(a), numeric(b)
    refuse_other_shape(a, b)
    n = a.n_elements
    itemsize = max(ALL_BY_NAME[each.dtype].itemsize if each.dtype in ALL_BY_NAME else 8 for each in (a, b))
    run = max(a.reader.run_length(a.entry), b.reader.run_length(b.entry))
    run *= max(1, _RUN_NBYTES // (run * itemsize))
    with np.errstate(all="ignore"):
        for start in range(0, n, run):
            stop = min(start + run, n)
            parts = [each.reader.read_run(each.name, each.entry, start, stop).reshape(-1) for each in (a, b)]
            for first in range(0, stop - start, _BLOCK):
                part_a, part_b = (part[first : first + _BLOCK] for part in parts)
                yield as_numbers(part_a), change_between(part_a, part_b)
            meter.add(a.nbytes * (stop - start) // n)


def _finite_squares(numbers: Numbers) -> float:
    finite = numbers[np.isfinite(numbers)]
    return _squares(finite)


def _squares(numbers: Numbers) -> float:
    return float(np.einsum("i,i->", numbers, numbers))  # not `dot`, which starts threads of its own

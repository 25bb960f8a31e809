"""What is counted of the elements of a tensor. Pure.

Elements of 8 or 16 bits have few patterns of bits. Counting these is all that must be done with each element, and
everything else follows exactly from the counts. Wider elements are converted to float64 in small blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import fsum, isfinite, sqrt
from typing import Any, Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import adapter_for
from tensorkeep.dtypes import DType
from tensorkeep.measuring._bins import Bins, Numbers
from tensorkeep.measuring._moments import Moments
from tensorkeep.measuring._result import TensorStatistics

Array = npt.NDArray[Any]

_N_COUNTED: Final = 2**17
"""16-bit patterns counted at a time: 1 MB as `intp`, which `bincount` needs, and 512 kB of counters: the L2 cache."""

_N_SORTED: Final = 2**13
"""Patterns up to which sorting is cheaper than clearing 65,536 counters."""

_N_CONVERTED: Final = 2**15
"""Elements converted to float64 at a time: 256 kB, which stay in the L2 cache with what is computed of them."""


class Tally(Protocol):
    """Counts elements of one dtype; each part of a tensor has one of its own."""

    def add(self, elements: Array) -> None:
        """Count a one-dimensional array of elements."""


class Facts(msgspec.Struct, frozen=True):
    """A tensor's name, dtype and shape, for its statistics."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    n_elements: int


def tally_for(dtype: DType) -> Tally:
    """Return a tally for elements of a dtype."""
    return PatternTally(dtype) if dtype.bits <= 16 else NumberTally(dtype)


def merged(tallies: Sequence[Any], facts: Facts) -> TensorStatistics:
    """Return the statistics of a tensor from the tallies of its parts, in their order."""
    first = tallies[0]
    for other in tallies[1:]:
        first.merge(other)
    statistics: TensorStatistics = first.result(facts)
    return statistics


class PatternTally:
    """How often each pattern of at most 16 bits occurs."""

    def __init__(self, dtype: DType) -> None:
        self._dtype = dtype
        self._only: Array | None = None
        self._counts: npt.NDArray[np.int64] | None = None

    def add(self, elements: Array) -> None:
        """Count elements."""
        patterns: Array = elements.view(np.uint8 if elements.itemsize == 1 else np.uint16)
        if len(patterns) <= _N_SORTED and self._only is None and self._counts is None:
            self._only = patterns.copy()  # of a small tensor these are all, and need no counters
        else:
            self._count_only()
            self._count(patterns)

    def _count_only(self) -> None:
        """Count what was kept because it may have been all."""
        only, self._only = self._only, None
        if only is not None:
            self._count(only)

    def _count(self, patterns: Array) -> None:
        if self._counts is None:
            self._counts = np.zeros(2 ** (8 * patterns.itemsize), np.int64)
        if patterns.itemsize == 2:
            _count(patterns, self._counts)
            return
        n_pairs = len(patterns) // 2 if len(patterns) > _N_SORTED else 0  # two at a time take half as long
        if n_pairs:
            pairs = np.zeros(2**16, np.int64)
            _count(np.ascontiguousarray(patterns[: 2 * n_pairs]).view(np.uint16), pairs)
            both = pairs.reshape(256, 256)
            self._counts += both.sum(axis=0) + both.sum(axis=1)
        self._counts += np.bincount(patterns[2 * n_pairs :], minlength=256)

    def merge(self, other: PatternTally) -> None:
        """Add the counts of another part."""
        self._count_only()
        other._count_only()
        if self._counts is None:
            self._counts = other._counts
        elif other._counts is not None:
            self._counts += other._counts

    def result(self, facts: Facts) -> TensorStatistics:
        """Return what follows from the counts."""
        if self._only is not None:
            found, counts = np.unique(self._only, return_counts=True)
        elif self._counts is not None:
            found = np.flatnonzero(self._counts)
            counts = self._counts[found]
        else:
            return TensorStatistics(**msgspec.structs.asdict(facts), n_distinct=0)
        values = _values(self._dtype)[found]
        is_number = np.isfinite(values)
        numbers, weights = values[is_number], counts[is_number]
        common = {
            **msgspec.structs.asdict(facts),
            "n_nan": int(counts[np.isnan(values)].sum()),
            "n_inf": int(counts[np.isinf(values)].sum()),
            "n_distinct": len(np.unique(values)),
        }
        if not len(numbers):
            return TensorStatistics(**common)
        low, high = numbers.min(), numbers.max()
        mean = fsum((numbers * weights).tolist()) / int(weights.sum())
        distances = numbers - mean
        n_zeros = int(weights[numbers == 0].sum())
        bins = Bins()
        bins.add(numbers, max(-low, high), weights)
        return TensorStatistics(
            **common,
            n_zeros=n_zeros,
            min=_extreme(low, self._dtype),
            max=_extreme(high, self._dtype),
            mean=mean,
            std=sqrt(fsum((distances * distances * weights).tolist()) / int(weights.sum())),
            norm=sqrt(fsum((numbers * numbers * weights).tolist())),
            histogram=bins.histogram(of_integers=_is_integer(self._dtype)),
            magnitudes=bins.magnitudes(n_zeros),
        )


def _count(patterns: Array, counts: npt.NDArray[np.int64]) -> None:
    """Add how often each 16-bit pattern occurs to the counts."""
    if len(patterns) <= _N_SORTED:
        found, n = np.unique(patterns, return_counts=True)
        counts[found] += n
        return
    for start in range(0, len(patterns), _N_COUNTED):
        counts += np.bincount(patterns[start : start + _N_COUNTED], minlength=2**16)


@cache
def _values(dtype: DType) -> Numbers:
    """Return the value of each pattern of bits as float64, which holds all of them."""
    patterns = np.arange(2 ** min(16, max(8, dtype.bits)), dtype=dtype.bits_name)
    if dtype.name == "BOOL":
        return np.minimum(patterns, 1).astype(np.float64)
    if dtype.is_packed:
        patterns %= 2**dtype.bits
    elements: Array = adapter_for("numpy").from_elements(patterns, dtype)
    with np.errstate(invalid="ignore"):  # NaN
        return elements.astype(np.float64)


def _extreme(number: float, dtype: DType) -> float | int:
    return int(number) if _is_integer(dtype) else float(number) + 0.0  # no -0


def _is_integer(dtype: DType) -> bool:
    return not (dtype.is_float or dtype.is_complex)


class NumberTally:
    """Elements of more than 16 bits, one by one."""

    def __init__(self, dtype: DType) -> None:
        self._dtype = dtype
        self._n_nan = self._n_inf = self._n_zeros = 0
        self._moments = Moments()
        self._bins = Bins()

    def add(self, elements: Array) -> None:
        """Count elements."""
        with np.errstate(all="ignore"):
            for start in range(0, len(elements), _N_CONVERTED):
                self._add_block(elements[start : start + _N_CONVERTED])

    def _add_block(self, elements: Array) -> None:
        if elements.dtype.kind == "c":
            elements = _magnitudes(elements)
        low, high = np.minimum.reduce(elements).item(), np.maximum.reduce(elements).item()  # NaN if there is one
        numbers = elements.astype(np.float64, copy=False)
        if not (isfinite(low) and isfinite(high)):
            is_number = np.isfinite(numbers)
            n_nan = int(np.count_nonzero(np.isnan(numbers)))
            self._n_nan += n_nan
            self._n_inf += len(numbers) - n_nan - int(np.count_nonzero(is_number))
            numbers = numbers[is_number]
            if not len(numbers):
                return
            low, high = float(numbers.min()), float(numbers.max())
        self._n_zeros += len(numbers) - int(np.count_nonzero(numbers))
        self._moments.add(numbers, low, high)
        self._bins.add(np.ascontiguousarray(numbers), float(max(-low, high)))

    def merge(self, other: NumberTally) -> None:
        """Add what was found in another part, which comes after this one."""
        self._n_nan += other._n_nan
        self._n_inf += other._n_inf
        self._n_zeros += other._n_zeros
        self._moments.merge(other._moments)
        self._bins.merge(other._bins)

    def result(self, facts: Facts) -> TensorStatistics:
        """Return the statistics."""
        moments = self._moments
        return TensorStatistics(
            **msgspec.structs.asdict(facts),
            n_nan=self._n_nan,
            n_inf=self._n_inf,
            n_zeros=self._n_zeros,
            min=moments.min,
            max=moments.max,
            mean=moments.mean if moments.n else None,
            std=moments.std if moments.n else None,
            norm=moments.norm,
            histogram=self._bins.histogram(of_integers=_is_integer(self._dtype)),
            magnitudes=self._bins.magnitudes(self._n_zeros),
        )


def _magnitudes(elements: Array) -> Numbers:
    """Return the magnitudes of complex numbers; NaN where either part is, though the other may be infinite."""
    wide = elements.astype(np.complex128, copy=False)
    magnitudes: Numbers = np.abs(wide)
    magnitudes[np.isnan(wide)] = np.nan
    return magnitudes

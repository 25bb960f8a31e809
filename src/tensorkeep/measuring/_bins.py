"""Counts of numbers by value and by magnitude, from which histograms are made. Pure.

The range of values is not known before all are read. So numbers are counted in fine bins over a range from -2^k to
2^k, and when a larger number comes, k grows and neighboring bins are joined. Their edges stay multiples of a power of
two, so the counts are as in one pass that knew the range, whatever the order of the parts.
"""

from __future__ import annotations

from math import frexp, ldexp
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.measuring._result import Histogram

Numbers = npt.NDArray[np.float64]
_Counts = npt.NDArray[np.int64]

_FINE_BITS: Final = 12
"""4,096 fine bins of 8 bytes: they fit into the L1 cache, and 64 of them can show 1/64 of the range."""

_HALF: Final = 2 ** (_FINE_BITS - 1)
_N_BINS: Final = 64

_LEAST_EXPONENT: Final = -1000
"""The least k, so that the width of a fine bin has an inverse."""

_N_MAGNITUDES: Final = 2048
"""Exponents of a float64."""

_EXPONENT_BIAS: Final = 1023

_POWERS: Final = (*(ldexp(1.0, place - _EXPONENT_BIAS) for place in range(_N_MAGNITUDES - 1)), np.inf, np.inf)
"""The least number of each exponent: powers of two."""

_N_FEW: Final = 2**12
"""Numbers up to which bins cost more than the numbers: of a small tensor, they are kept until all are known."""


class Bins:
    """Counts of finite numbers."""

    def __init__(self) -> None:
        self._exponent = _LEAST_EXPONENT
        self._few: _Block | None = None
        self._fine: _Counts | None = None
        self._magnitudes: _Counts | None = None

    def add(self, numbers: Numbers, largest: float, weights: _Counts | None = None) -> None:
        """Count numbers, all of magnitudes up to `largest`; `weights` is how often each occurs."""
        few = _Block(numbers, frexp(largest)[1], weights)
        if len(numbers) <= _N_FEW and self._few is None and self._fine is None:
            self._few = few
        else:
            self._count(few)

    def _count(self, *more: _Block) -> tuple[_Counts, _Counts]:
        """Count what was kept, and more; return the counts by value and by magnitude."""
        if self._fine is None or self._magnitudes is None:
            self._fine, self._magnitudes = np.zeros(2 * _HALF, np.int64), np.zeros(_N_MAGNITUDES, np.int64)
        kept, self._few = self._few, None
        for few in more if kept is None else (kept, *more):
            self._widen(few.exponent)
            self._fine += _counted(few.places(self._exponent) + _HALF, few.weights, 2 * _HALF)
            self._magnitudes += _counted(few.magnitudes(), few.weights, _N_MAGNITUDES)
        return self._fine, self._magnitudes

    def merge(self, other: Bins) -> None:
        """Add what another has counted."""
        for each in (self, other):
            each._count()
        self._widen(other._exponent)
        other._widen(self._exponent)
        for counts, others in zip(self._count(), other._count(), strict=True):
            np.add(counts, others, out=counts)

    def _widen(self, exponent: int) -> None:
        """Join neighboring bins until numbers below 2^exponent have a place."""
        n_doublings = min(exponent - self._exponent, _FINE_BITS - 1)
        if n_doublings > 0 and self._fine is not None:
            joined = self._fine.reshape(-1, 2**n_doublings).sum(axis=1)
            begin = _HALF - len(joined) // 2
            self._fine = np.zeros_like(self._fine)
            self._fine[begin : begin + len(joined)] = joined
        self._exponent = max(self._exponent, exponent)

    def histogram(self, *, of_integers: bool) -> Histogram:
        """Return the numbers by value, in a few bins of equal width; of integers, none is narrower than 1."""
        if self._few is not None:
            exponent, counts = max(self._few.exponent, _LEAST_EXPONENT), self._few.weights
            filled, is_zero = self._few.places(exponent), not self._few.magnitudes().any()
        else:
            fine, magnitudes = self._count()
            filled = np.flatnonzero(fine)
            exponent, counts, is_zero = self._exponent, fine[filled], not magnitudes[1:].any()
            filled -= _HALF
        if not len(filled):
            return Histogram()
        low, high = int(np.minimum.reduce(filled)), int(np.maximum.reduce(filled))
        exponent = (0 if is_zero else exponent) - (_FINE_BITS - 1)
        n_joined_bits = max(0, -exponent) if of_integers else 0
        while (high >> n_joined_bits) - (low >> n_joined_bits) >= _N_BINS:
            n_joined_bits += 1
        first = low >> n_joined_bits
        counts = _counted((filled >> n_joined_bits) - first, counts, (high >> n_joined_bits) - first + 1)
        width = ldexp(1.0, exponent + n_joined_bits)
        edges = np.arange(first, first + len(counts) + 1) * width
        return Histogram(tuple(edges.tolist()), tuple(counts.tolist()))

    def magnitudes(self, n_zeros: int) -> Histogram:
        """Return the numbers that are not zero by magnitude."""
        if self._few is not None:
            is_other = self._few.numbers != 0
            weights = self._few.weights
            filled = self._few.magnitudes()[is_other]
            counts = None if weights is None else weights[is_other]
        else:
            counts = self._count()[1].copy()
            counts[0] -= n_zeros
            filled = np.flatnonzero(counts)
            counts = counts[filled]
        if not len(filled):
            return Histogram()
        first, last = int(np.minimum.reduce(filled)), int(np.maximum.reduce(filled))
        return Histogram(
            _POWERS[first : last + 2], tuple(_counted(filled - first, counts, last - first + 1).tolist())
        )


class _Block(msgspec.Struct, frozen=True):
    """Some numbers, all below 2^exponent, and how often each occurs."""

    numbers: Numbers
    exponent: int
    weights: _Counts | None

    def places(self, exponent: int) -> npt.NDArray[np.intp]:
        """Return in which fine bin of a range from -2^exponent each is; the middle of the range is 0."""
        scale = ldexp(1.0, _FINE_BITS - 1 - exponent)
        places = np.floor(self.numbers * scale)
        if scale < 1:  # tiny negative numbers may have become zero
            places[(places == 0) & (self.numbers < 0)] = -1
        return places.astype(np.intp)

    def magnitudes(self) -> npt.NDArray[np.int64]:
        """Return the exponent of each, as float64 has it."""
        exponents = self.numbers.view(np.int64) >> 52
        exponents &= _N_MAGNITUDES - 1
        return exponents


def _counted(places: npt.NDArray[Any], weights: _Counts | None, n_bins: int) -> _Counts:
    """Count how often each place occurs."""
    if weights is None:
        return np.bincount(places, minlength=n_bins)
    return np.bincount(places, weights, n_bins).astype(np.int64)  # float64, exact up to 2^53

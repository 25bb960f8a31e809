"""Counts of numbers by value and by magnitude, from which histograms are made. Pure.

The range of values is not known before all are read. So numbers are counted in fine bins over a range from -2^k to
2^k, and when a larger number comes, k grows and neighboring bins are joined. Their edges stay multiples of a power of
two, so the counts are as in one pass that knew the range, whatever the order of the parts.
"""

from __future__ import annotations

from math import frexp, ldexp
from typing import Any, Final

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


class Bins:
    """Counts of finite numbers."""

    def __init__(self) -> None:
        self._exponent = _LEAST_EXPONENT
        self._fine: _Counts = np.zeros(2 * _HALF, np.int64)
        self._magnitudes: _Counts = np.zeros(_N_MAGNITUDES, np.int64)

    def add(self, numbers: Numbers, largest: float, weights: _Counts | None = None) -> None:
        """Count numbers, all of magnitudes up to `largest`; `weights` is how often each occurs."""
        self._widen(frexp(largest)[1])
        scale = ldexp(1.0, _FINE_BITS - 1 - self._exponent)
        places = np.floor(numbers * scale)
        if scale < 1:  # tiny negative numbers may have become zero
            places[(places == 0) & (numbers < 0)] = -1
        places += _HALF
        self._fine += _counted(places.astype(np.intp), weights, 2 * _HALF)
        exponents = numbers.view(np.int64) >> 52
        exponents &= _N_MAGNITUDES - 1
        self._magnitudes += _counted(exponents, weights, _N_MAGNITUDES)

    def merge(self, other: Bins) -> None:
        """Add what another has counted."""
        self._widen(other._exponent)
        other._widen(self._exponent)
        self._fine += other._fine
        self._magnitudes += other._magnitudes

    def _widen(self, exponent: int) -> None:
        """Join neighboring bins until numbers below 2^exponent have a place."""
        n_doublings = min(exponent - self._exponent, _FINE_BITS - 1)
        if n_doublings > 0:
            joined = self._fine.reshape(-1, 2**n_doublings).sum(axis=1)
            begin = _HALF - len(joined) // 2
            self._fine = np.zeros_like(self._fine)
            self._fine[begin : begin + len(joined)] = joined
        self._exponent = max(self._exponent, exponent)

    def histogram(self, *, of_integers: bool) -> Histogram:
        """Return the numbers by value, in a few bins of equal width; of integers, none is narrower than 1."""
        filled = np.flatnonzero(self._fine) - _HALF
        if not len(filled):
            return Histogram()
        exponent = self._exponent if self._magnitudes[1:].any() else 0  # zeros alone
        exponent -= _FINE_BITS - 1
        n_joined_bits = max(0, -exponent) if of_integers else 0
        while (int(filled[-1]) >> n_joined_bits) - (int(filled[0]) >> n_joined_bits) >= _N_BINS:
            n_joined_bits += 1
        places = filled >> n_joined_bits
        first = int(places[0])
        counts = _counted(places - first, self._fine[filled + _HALF], int(places[-1]) - first + 1)
        width = ldexp(1.0, exponent + n_joined_bits)
        edges = [(first + place) * width for place in range(len(counts) + 1)]
        return Histogram(tuple(edges), tuple(counts.tolist()))

    def magnitudes(self, n_zeros: int) -> Histogram:
        """Return the numbers that are not zero by magnitude."""
        counts = self._magnitudes.copy()
        counts[0] -= n_zeros
        filled = np.flatnonzero(counts)
        if not len(filled):
            return Histogram()
        first, last = int(filled[0]), int(filled[-1])
        edges = [_power_of_two(place - _EXPONENT_BIAS) for place in range(first, last + 2)]
        return Histogram(tuple(edges), tuple(counts[first : last + 1].tolist()))


def _power_of_two(exponent: int) -> float:
    return ldexp(1.0, exponent) if exponent <= _EXPONENT_BIAS else np.inf


def _counted(places: npt.NDArray[Any], weights: _Counts | None, n_bins: int) -> _Counts:
    """Count how often each place occurs."""
    if weights is None:
        return np.bincount(places, minlength=n_bins)
    return np.bincount(places, weights, n_bins).astype(np.int64)  # float64, exact up to 2^53

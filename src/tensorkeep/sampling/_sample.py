"""Rows and columns at equal distances, of one tensor or of the difference of two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

from tensorkeep.checkpoint import change_between
from tensorkeep.sampling._reading import Numbers, as_numbers, in_numpy, is_cheap, refuse_costly
from tensorkeep.sampling._window import Window
from tensorkeep.tensors import LazyTensor

_FEWER_ROWS: Final = (1, 4, 16)
"""Divisors of the number of rows in a sample; of wide tensors, whole rows must be read for a few columns."""


class Sample(msgspec.Struct, frozen=True, eq=False):
    """Some numbers of a plane.

    Attributes:
        window: Where they are.
        matrix: The numbers, complex ones as their magnitudes.
        is_cut: Whether they are the first corner, because a sample of the whole would cost too much.
    """

    window: Window
    matrix: Numbers
    is_cut: bool

    @property
    def scale(self) -> float:
        """The magnitude that colors reach: 99 of 100 numbers are smaller."""
        magnitudes = np.abs(self.matrix[np.isfinite(self.matrix)])
        if not magnitudes.any():
            return 1.0
        return float(np.quantile(magnitudes, 0.99)) or float(magnitudes.max())


def sample(tensors: Sequence[LazyTensor], window: Window, height: int, width: int) -> Sample:
    """Read at most so many rows and columns of a plane; of two tensors, the first without the second."""
    tensors = [in_numpy(lazy) for lazy in tensors]
    windows = (window.sampled(max(1, height // fewer), width) for fewer in _FEWER_ROWS)
    cheap = next((each for each in windows if all(is_cheap(lazy, each.index) for lazy in tensors)), None)
    shown = window.corner(height, width) if cheap is None else cheap
    return Sample(shown, shown.matrix(numbers_at(tensors, shown.index)), cheap is None)


def numbers_at(tensors: Sequence[LazyTensor], index: tuple[Any, ...]) -> Numbers:
    """Read a part of a tensor, or of the difference of two."""
    if not tensors[0].n_elements:
        return np.zeros(0)
    for lazy in tensors:
        refuse_costly(lazy, index)
    first, *others = (np.asarray(lazy[index]) for lazy in tensors)
    return change_between(others[0], first) if others else as_numbers(first)

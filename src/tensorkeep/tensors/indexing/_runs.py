"""A selection as runs of equal length, such as the same columns of every row. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.tensors.indexing._selection import Selection


class Runs(msgspec.Struct, frozen=True):
    """The elements of a block, run by run.

    Attributes:
        starts: First element of each run, counted from the start of the tensor; int64 of shape (runs,), in the
            block's C order.
        n_elements: Elements of each run.
    """

    starts: npt.NDArray[Any]
    n_elements: int


def runs_of(selection: Selection, strides: Sequence[int]) -> Runs | None:
    """Return a selection as runs, in the order of the tensor; None if it is empty."""
    if not selection.n_elements:
        return None
    axes = list(zip(selection.axes, strides, strict=True))
    n_elements = 1
    first = 0
    while axes:
        axis, stride = axes[-1]
        is_run = int(axis[-1] - axis[0]) + 1 == len(axis) and (stride == n_elements or len(axis) == 1)
        if not is_run:
            break
        first += int(axis[0]) * stride
        n_elements *= len(axis)
        axes.pop()
    steps = [np.asarray(axis, np.int64) * stride for axis, stride in axes]
    starts = reduce(np.add.outer, steps, np.full((), first, np.int64)).reshape(-1)
    return Runs(starts, n_elements)

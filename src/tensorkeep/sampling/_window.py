"""Which elements of a tensor are shown: a plane of two dimensions, and ranges of its rows and columns. Pure."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt


class Window(msgspec.Struct, frozen=True):
    """Rows and columns of a plane of a tensor.

    Attributes:
        dims: The dimensions of rows and columns; just the columns' one for a vector, and empty for a single number.
        at: The plane's position along all other dimensions; what it has for `dims` is ignored.
        rows: Positions of the rows that are shown.
        columns: Positions of the columns.
    """

    dims: tuple[int, ...]
    at: tuple[int, ...]
    rows: range
    columns: range

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns that are shown."""
        return len(self.rows), len(self.columns)

    @property
    def is_exact(self) -> bool:
        """Whether no row or column between them is left out."""
        return self.rows.step == self.columns.step == 1

    @property
    def index(self) -> tuple[int | slice, ...]:
        """The index that reads the elements, in the order of the tensor's dimensions."""
        index: list[int | slice] = list(self.at)
        for dim, positions in zip(self.dims, (self.rows, self.columns)[-len(self.dims) :], strict=False):
            index[dim] = slice(positions.start, positions.stop, positions.step)
        return tuple(index)

    def matrix(self, elements: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return what was read as rows and columns."""
        if len(self.dims) == 2 and self.dims[0] > self.dims[1]:
            elements = elements.T
        return np.asarray(elements).reshape(self.shape)

    def sampled(self, height: int, width: int) -> Window:
        """Return at most so many rows and columns, at equal distances."""
        return self._with(_thinned(self.rows, height), _thinned(self.columns, width))

    def corner(self, height: int, width: int) -> Window:
        """Return at most so many of the first rows and columns."""
        return self._with(self.rows[:height], self.columns[:width])

    def _with(self, rows: range, columns: range) -> Window:
        return msgspec.structs.replace(self, rows=rows, columns=columns)


def plane_of(shape: tuple[int, ...]) -> Window:
    """Return all of the first plane of a tensor: its last two dimensions, or the only one."""
    dims = tuple(range(max(0, len(shape) - 2), len(shape)))
    extents = (1, 1, *(shape[dim] for dim in dims))[-2:] if 0 not in shape else (0, 0)
    return Window(dims, (0,) * len(shape), range(extents[0]), range(extents[1]))


def _thinned(positions: range, n: int) -> range:
    return positions[:: -(-len(positions) // n)] if len(positions) > n else positions

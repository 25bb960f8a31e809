"""The part of a large result that is printed, read without the rest.

NumPy prints the first and last three entries along each long axis. Four are read at each end, one more than are
printed, so that NumPy sees that there are more and prints the dots itself.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import msgspec

from tensorkeep.cli.inputs._index_syntax import Index, IndexItem

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensorkeep.tensors import LazyTensor


_PRINTED_WHOLE = 1000
"""Most elements that NumPy prints without leaving any out."""

_EDGE = 4


class Preview(msgspec.Struct, frozen=True):
    """The printed part of a result.

    Attributes:
        shape: Shape of the whole result, in elements.
        values: The result, or its corners: at most 8 entries along each axis.
    """

    shape: tuple[int, ...]
    values: NDArray[Any]

    @property
    def is_cut(self) -> bool:
        """Whether `values` is only a part."""
        return self.values.shape != self.shape

    def lines(self, width: int) -> list[str]:
        """Format the values as NumPy formats the whole result."""
        import numpy as np

        threshold = 0 if self.is_cut else _PRINTED_WHOLE
        return np.array2string(self.values, threshold=threshold, edgeitems=_EDGE - 1, max_line_width=width).split(
            "\n"
        )


def read_preview(tensor: LazyTensor, index: Index) -> Preview:
    """Read the part of `tensor[index]` that will be printed."""
    items = _spelled_out(index, tensor.ndim)
    if items is not None:
        shape, choices = _corners(items, tensor.shape)
        if prod(shape) > _PRINTED_WHOLE:
            return Preview(shape, _read_corners(tensor, choices, (), axis=0))
    values = tensor[index]
    return Preview(values.shape, values)


def _spelled_out(index: Index, ndim: int) -> list[IndexItem] | None:
    """Return one item per dimension; None for an index with lists, or one that does not fit."""
    n_missing = ndim - sum(item is not None and item is not ... for item in index)
    if n_missing < 0 or index.count(...) > 1 or any(isinstance(item, list) for item in index):
        return None
    items = index if ... in index else (*index, ...)
    place = items.index(...)
    return [*items[:place], *[slice(None)] * n_missing, *items[place + 1 :]]


def _corners(items: list[IndexItem], extents: tuple[int, ...]) -> tuple[tuple[int, ...], list[list[IndexItem]]]:
    """Return the result's shape, and for each item what to read in its place: itself, or its two ends."""
    shape: list[int] = []
    choices: list[list[IndexItem]] = []
    remaining = iter(extents)
    for item in items:
        extent = 1 if item is None else next(remaining)
        choices.append([item])
        if isinstance(item, slice):
            positions = range(extent)[item]
            extent = len(positions)
            if extent > 2 * _EDGE:
                choices[-1] = [_slice_of(positions[:_EDGE]), _slice_of(positions[-_EDGE:])]
        if not isinstance(item, int):
            shape.append(extent)
    return tuple(shape), choices


def _slice_of(positions: range) -> slice:
    return slice(positions.start, positions.stop if positions.stop >= 0 else None, positions.step)


def _read_corners(tensor: LazyTensor, choices: list[list[IndexItem]], chosen: Index, axis: int) -> NDArray[Any]:
    """Read every combination of choices and join them; `axis` is the result's axis of the next choice."""
    import numpy as np

    if not choices:
        block: NDArray[Any] = tensor[chosen]
        return block
    first, *rest = choices
    next_axis = axis if isinstance(first[0], int) else axis + 1
    blocks = [_read_corners(tensor, rest, (*chosen, item), next_axis) for item in first]
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=axis)

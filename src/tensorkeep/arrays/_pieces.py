"""How a tensor is cut to be copied in bounded memory. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod


def pieces(shape: tuple[int, ...], itemsize: int, max_nbytes: int) -> Iterator[tuple[int | slice, ...]]:
    """Give the indices of parts of at most `max_nbytes`, in C order; one element at a time at worst."""
    if prod(shape) * itemsize <= max_nbytes or not shape:
        yield ()
        return
    row_nbytes = prod(shape[1:]) * itemsize
    if row_nbytes <= max_nbytes:
        n_rows = max_nbytes // row_nbytes
        for begin in range(0, shape[0], n_rows):
            yield (slice(begin, min(begin + n_rows, shape[0])),)
        return
    for row in range(shape[0]):
        for inner in pieces(shape[1:], itemsize, max_nbytes):
            yield (row, *inner)

"""Indices of every kind that NumPy takes, those out of range and of a wrong shape among them."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np

__all__ = ["SHAPES", "indices"]

SHAPES = st.lists(st.integers(0, 7), max_size=4).map(tuple)
HUGE = 2**70


def _bounds(extent: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(-extent - 3, extent + 3) | st.sampled_from([-HUGE, HUGE])


def _slices(extent: int) -> st.SearchStrategy[slice]:
    step = st.none() | st.integers(-extent - 2, extent + 2) | st.sampled_from([1, 1, -1, HUGE, -HUGE])
    return st.builds(slice, _bounds(extent), _bounds(extent), step)


@st.composite
def _positions(draw: st.DrawFn, extent: int, length: int) -> Any:
    """Draw positions with repetitions and negatives; now and then one too far, or a list of two dimensions."""
    reach = extent if draw(st.booleans()) else extent + 1
    position = st.integers(-reach, max(-reach, reach - 1))
    flat = draw(st.lists(position, min_size=length, max_size=length))
    shape = draw(st.sampled_from([(length,), (length,), (1, length), (length, 1)]))
    as_array = np.array(flat, draw(st.sampled_from(["i8", "i4", "i1"]))).reshape(shape)
    return draw(st.sampled_from([as_array, as_array.tolist()]))


@st.composite
def indices(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """Draw an index for a tensor of this shape."""
    length = draw(st.integers(0, 4))
    items: list[Any] = []
    axis = 0
    while axis < len(shape) and draw(st.integers(0, 5)):
        extent = shape[axis]
        kind = draw(st.sampled_from(["slice"] * 4 + ["integer"] * 2 + ["positions"] * 2 + ["mask", "new", "rest"]))
        if kind == "slice":
            items.append(draw(_slices(extent)))
        elif kind == "integer":
            number = draw(st.integers(-extent, extent))
            items.append(draw(st.sampled_from([number, np.int64(number), np.array(number)])))
        elif kind == "positions":
            items.append(draw(_positions(extent, length)))
        elif kind == "mask":
            n_axes = draw(st.integers(1, min(3, len(shape) - axis)))
            extents = list(shape[axis : axis + n_axes])
            if not draw(st.integers(0, 15)):
                extents[0] += 1
            flags = draw(st.lists(st.booleans(), min_size=int(np.prod(extents)), max_size=int(np.prod(extents))))
            items.append(np.array(flags, bool).reshape(extents))
            axis += n_axes - 1
        elif kind == "new":
            items.append(None)
            axis -= 1
        else:
            items.append(Ellipsis)
            axis += draw(st.integers(0, len(shape) - axis)) - 1
        axis += 1
    if not draw(st.integers(0, 20)):
        items.append(draw(st.sampled_from([0, None, Ellipsis, slice(None), 1.5, "a", True])))
    if len(items) == 1 and draw(st.booleans()):
        return items[0]
    return tuple(items)

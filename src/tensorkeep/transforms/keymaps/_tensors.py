"""The tensors of a group: joined, split, with other dimensions or rows in another order."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorkeep.errors import RefusedError
from tensorkeep.tensors import LazyTensor, LazyTensors, Region, computed_tensor
from tensorkeep.transforms.arranging import part_of, tiled
from tensorkeep.transforms.keymaps._plan import Group
from tensorkeep.transforms.keymaps._rule import Rule


def tensors_of(group: Group, tensors: LazyTensors) -> Iterator[tuple[str, LazyTensor]]:
    """Give the tensors on the right with their names."""
    rule = group.rule
    if rule.parts_side == "left":
        rows = [[_changed(rule, tensors[name]) for name in row] for row in group.rows]
        [[name]] = group.new_rows(1)
        yield name, tiled(name, rows, rule.along, is_stacked=rule.stack is not None, path=tensors.path)
        return
    whole = tensors[group.rows[0][0]]
    if rule.stack is not None and not whole.ndim:
        raise _refused(whole, "a first dimension with one position for each part")
    new = group.new_rows(whole.shape[0] if rule.stack is not None else 1)
    for number, row in enumerate(new):
        parts = _parts(rule, whole, number if rule.stack is not None else None)
        yield from zip(row, (_changed(rule, part) for part in parts), strict=True)


def _parts(rule: Rule, whole: LazyTensor, number: int | None) -> list[LazyTensor]:
    """Return the parts of one row of the whole, or of all of it."""
    first = 0 if number is None else 1
    shape = whole.shape[first:]
    kept = tuple(range(first, whole.ndim))
    n_parts = len(rule.right)
    if n_parts == 1:
        sizes: tuple[int, ...] = shape[rule.along : rule.along + 1]
    elif rule.along >= len(shape):
        raise _refused(whole, f"a dimension {rule.along} that is split")
    else:
        sizes = rule.sizes or (shape[rule.along] // n_parts,) * n_parts
        if sum(sizes) != shape[rule.along]:
            raise _refused(
                whole, f"{sum(sizes) if rule.sizes else f'a multiple of {n_parts}'} in dimension {rule.along}"
            )
    parts = []
    start = 0
    for size in sizes or (1,):
        starts = tuple(start if axis == rule.along and n_parts > 1 else 0 for axis in range(len(shape)))
        stops = tuple(
            start + size if axis == rule.along and n_parts > 1 else extent for axis, extent in enumerate(shape)
        )
        row = () if number is None else (number,)
        after = () if number is None else (number + 1,)
        parts.append(part_of(whole, Region((*row, *starts), (*after, *stops)), kept))
        start += size
    return parts


def _changed(rule: Rule, lazy: LazyTensor) -> LazyTensor:
    """Return a tensor with its dimensions, or its rows, as they are on the right."""
    if rule.order is not None:
        if lazy.ndim != len(rule.order):
            raise _refused(lazy, f"{len(rule.order)} dimensions, as in `order`")
        return part_of(lazy, Region((0,) * lazy.ndim, lazy.shape), rule.order)
    if rule.heads is not None:
        if not lazy.ndim or lazy.shape[0] % (2 * rule.heads):
            raise _refused(lazy, f"rows that are a multiple of 2 for each of {rule.heads} heads")
        rows = partial(_with_rows_of_heads, rule.heads, rule.is_back)
        return computed_tensor(lazy.name, rows, (lazy,), scope="tensor", framework="numpy")
    return lazy


def _with_rows_of_heads(heads: int, is_back: bool, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Put the rows of each head in another order: pairs as halves, or halves as pairs."""
    groups = (heads, 2, -1) if is_back else (heads, -1, 2)
    return np.swapaxes(array.reshape(*groups, *array.shape[1:]), 1, 2).reshape(array.shape)


def _refused(lazy: LazyTensor, expected: str) -> RefusedError:
    return RefusedError(
        f"tensor `{lazy.name}` does not fit its rule in the key map",
        tensor=lazy.name,
        expected=expected,
        found=f"shape {list(lazy.shape)}",
    )

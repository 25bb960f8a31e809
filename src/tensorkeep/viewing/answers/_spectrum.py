"""Singular values of a plane of a tensor, from the inner products of its shorter side."""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from typing import Any, Final

import msgspec
import numpy as np

from tensorkeep.errors import LimitError, UnsupportedError
from tensorkeep.parallel import Progress
from tensorkeep.tensors import LazyTensor
from tensorkeep.viewing._json import number
from tensorkeep.viewing.answers._reading import Numbers, as_numbers, numeric, refuse_costly
from tensorkeep.viewing.answers._window import Window

_MAX_SIDE: Final = 2048
"""Longest shorter side: its inner products take 32 MB, and their eigenvalues some seconds."""

_MAX_ELEMENTS: Final = 2**28
_BLOCK_ELEMENTS: Final = 2**20
"""Elements that are read at a time: 8 MB as float64."""

_PRECISION: Final = float(np.finfo(np.float64).eps) ** 0.5
"""Squares of singular values are known to the precision of float64, so they themselves only to its root."""


def spectrum(lazy: LazyTensor, window: Window, progress: Progress) -> dict[str, Any]:
    """Return the singular values of a plane, and how many of them matter."""
    lazy = numeric(lazy)
    refuse_large(window)
    gram = _inner_products(lazy, window, progress)
    if not np.isfinite(gram).all():
        raise UnsupportedError(f"tensor `{lazy.name}` has NaN, infinities or huge numbers there", tensor=lazy.name)
    squares = np.linalg.eigvalsh(gram)[::-1]
    found = np.sqrt(np.maximum(squares, 0))
    largest = float(found[0]) if len(found) else 0.0
    return {
        "values": [number(value) for value in found.tolist()],
        "rank": _effective_rank(found),
        "stable_rank": float((found**2).sum()) / largest**2 if largest else 0.0,
        "floor": largest * _PRECISION,
    }


def refuse_large(window: Window) -> None:
    """Refuse a plane that would take too long."""
    n_rows, n_columns = window.shape
    if min(n_rows, n_columns) > _MAX_SIDE or n_rows * n_columns > _MAX_ELEMENTS:
        raise LimitError(
            "the plane is too large for singular values",
            expected=f"a shorter side of at most {_MAX_SIDE:,}, and at most {_MAX_ELEMENTS:,} elements",
            found=f"{n_rows:,} x {n_columns:,}",
        )


def _inner_products(lazy: LazyTensor, window: Window, progress: Progress) -> Numbers:
    """Return the inner products of the columns, or of the rows if they are fewer."""
    n_rows, n_columns = window.shape
    is_tall = n_rows >= n_columns
    side, length = (n_columns, n_rows) if is_tall else (n_rows, n_columns)
    step = max(1, _BLOCK_ELEMENTS // max(side, 1))
    cut: Callable[[range], Window] = (
        (lambda part: msgspec.structs.replace(window, rows=part))
        if is_tall
        else (lambda part: msgspec.structs.replace(window, columns=part))
    )
    positions = window.rows if is_tall else window.columns
    gram = np.zeros((side, side))
    for start in range(0, length, step):
        part = cut(positions[start : start + step])
        refuse_costly(lazy, part.index)
        block = part.matrix(as_numbers(np.asarray(lazy[part.index])))
        block = block if is_tall else block.T
        with np.errstate(all="ignore"):
            gram += block.T @ block
        progress(min(start + step, length), length)
    return gram


def _effective_rank(values: Numbers) -> float:
    """Return the number of equal singular values that would have the same entropy."""
    total = float(values.sum())
    if not total:
        return 0.0
    shares = values[values > 0] / total
    return exp(-float((shares * np.log(shares)).sum()))

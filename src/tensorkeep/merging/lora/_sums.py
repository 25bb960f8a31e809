"""One changed weight, by rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorkeep.merging._computing import Numbers


def with_product(scale: float, right: Any, weight: Numbers, left: Numbers) -> Numbers:
    """Return rows of a weight plus `scale` times the product of the same rows of `left` (rows, rank) and `right`.

    `right` (rank, …) is a lazy tensor, which is small and read each time.
    """
    return _sum(scale, right, weight, left).astype(weight.dtype)


def with_magnitude(scale: float, right: Any, weight: Numbers, left: Numbers, magnitude: Numbers) -> Numbers:
    """Return such rows with the norms that DoRA learned, `magnitude` (rows,)."""
    changed = _sum(scale, right, weight, left)
    factors = magnitude / np.linalg.norm(changed, axis=1)
    scaled: Numbers = (changed * factors[:, None]).astype(weight.dtype)
    return scaled


def plus(scale: float, bias: Numbers, change: Numbers) -> Numbers:
    """Return a bias plus `scale` times its change."""
    changed: Numbers = bias + change * bias.dtype.type(scale)
    return changed


def _sum(scale: float, right: Any, weight: Numbers, left: Numbers) -> Numbers:
    # In F64: in F32, the last bit of a product depends on how many rows are multiplied at once.
    factor = np.asarray(right).astype(np.float64)
    product = left.reshape(len(left), -1).astype(np.float64) @ factor.reshape(len(factor), -1)
    changed: Numbers = weight + (product * scale).reshape(weight.shape)
    return changed

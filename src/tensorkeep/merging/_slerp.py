"""Spherical linear interpolation between two models."""

from __future__ import annotations

from functools import partial
from math import acos, isinf, sin
from typing import Final

import numpy as np

from tensorkeep.merging._average import weighted_sum
from tensorkeep.merging._computing import Numbers, merged
from tensorkeep.tensors import LazyTensors, TensorView

_LINEAR_FROM: Final = 0.9995
"""Cosine from which two directions are the same: the arc between them is a line in F32."""


def slerp(a: LazyTensors, b: LazyTensors, t: float) -> TensorView:
    """Interpolate between two models along the arc between the directions of each tensor.

    This preserves norms better than an average, which cuts across the arc. Tensors that point in almost the same or
    in opposite directions, and tensors of zeros, are interpolated linearly. The numbers equal mergekit's; the formula
    is Shoemake's ("Animating rotation with quaternion curves", 1985).

    Args:
        a: An open file, checkpoint or view.
        b: Another, with the same names and shapes.
        t: The position on the arc, from 0 to 1: 0 gives `a`, 1 gives `b`.

    Returns:
        A view like `average`'s, with the dtypes and metadata of `a`. Even a slice computes whole tensors.

    Raises:
        TensorNotFoundError: If a name is not in both (also a KeyError).
        RefusedError: If a shape differs, or a tensor is quantized.
        DtypeError: If a dtype is unknown, or packs elements into bytes (F4, F6).
        ValueError: If `t` is not between 0 and 1.
    """
    if not 0 <= t <= 1:
        raise ValueError(f"t must be at least 0 and at most 1, not {t}: the arc ends at the models")
    return merged(lambda _: partial(_on_arc, t), (a, b), "tensor")


def _on_arc(t: float, a: Numbers, b: Numbers) -> Numbers:
    from_a, from_b = _direction(a), _direction(b)
    cosine = 1.0 if from_a is None or from_b is None else float(np.vdot(from_a, from_b))
    if not abs(cosine) <= _LINEAR_FROM:
        return weighted_sum((1 - t, t), a, b)
    angle = acos(cosine)
    return weighted_sum((sin((1 - t) * angle) / sin(angle), sin(t * angle) / sin(angle)), a, b)


def _direction(numbers: Numbers) -> Numbers | None:
    """Return the vector of length 1; None for zeros, which have no direction."""
    norm = float(np.linalg.norm(numbers.reshape(-1)))
    if isinf(norm):  # the squares are too large for the dtype
        numbers = numbers / np.abs(numbers).max()
        norm = float(np.linalg.norm(numbers.reshape(-1)))
    return numbers / norm if norm else None

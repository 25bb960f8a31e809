"""Merging by a function of numbers: computed in F32 or F64 by NumPy, and rounded to the first model's dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import adapter_for
from tensorkeep.dtypes import BY_NAME, DType
from tensorkeep.errors import RefusedError
from tensorkeep.tensors import LazyTensor, LazyTensors, Scope, TensorView, combine_each

Numbers: TypeAlias = npt.NDArray[Any]

Merge: TypeAlias = Callable[..., Numbers]
"""Takes the numbers of each model's tensor, F32 or F64, and returns new ones of the same shape and dtype."""


Integers: TypeAlias = Literal["equal", "first", "last"]
"""What becomes of tensors that are not floating-point numbers: they must be equal, or one model's are taken."""


def _first(*stored: Any) -> Any:
    return stored[0]


def _last(*stored: Any) -> Any:
    return stored[-1]


_CHOSEN: Final = {"first": _first, "last": _last}


def merged(
    merge_of: Callable[[str], Merge], models: Sequence[LazyTensors], scope: Scope, integers: Integers = "equal"
) -> TensorView:
    """Return a view of merged tensors."""
    if integers not in get_args(Integers):
        raise ValueError(f"integers must be one of {', '.join(map(repr, get_args(Integers)))}, not {integers!r}")

    def compute_of(name: str) -> Callable[..., Any]:
        tensors = [model[name] for model in models]
        _check_shapes(name, tensors)
        if not all(lazy.is_floating_point for lazy in tensors):
            return _CHOSEN.get(integers) or partial(_the_same, name)
        return in_wide(merge_of(name), tensors)

    return combine_each(compute_of, models, scope=scope, framework="numpy")


def _check_shapes(name: str, tensors: Sequence[LazyTensor]) -> None:
    if len({lazy.shape for lazy in tensors}) > 1:
        raise RefusedError(
            f"tensor `{name}` has another shape in another model",
            tensor=name,
            expected="models of one architecture and vocabulary",
            found=" and ".join(str(list(lazy.shape)) for lazy in tensors),
            hint="Drop it from each (`.drop(name)`) and take it from one model, or bring it to one shape with `.map`",
        )


def in_wide(merge: Merge, tensors: Sequence[LazyTensor]) -> Callable[..., Numbers]:
    """Return a function of tensors as they are stored: in F64 if one is, else F32, rounded to the first's dtype."""
    wide = BY_NAME["F64" if any(lazy.dtype == "F64" for lazy in tensors) else "F32"]
    return partial(_in_wide, merge, wide, BY_NAME[tensors[0].dtype])


def _in_wide(merge: Merge, wide: DType, narrow: DType, *stored: Any) -> Numbers:
    arrays = adapter_for("numpy")
    numbers: Numbers = arrays.cast(merge(*(arrays.cast(tensor, wide) for tensor in stored)), narrow)
    return numbers


def _the_same(name: str, *stored: Any) -> Any:
    """Return the first of tensors that must be equal, such as positions and counters."""
    first = stored[0]
    if not all(np.array_equal(first, other) for other in stored[1:]):
        raise RefusedError(
            f"tensor `{name}` differs between the models, and is not floating point",
            tensor=name,
            expected="floating-point numbers, or the same values in all models",
            found=str(first.dtype),
            hint='`average` and `ema` take the last one with integers="last"; or drop it from each with .drop(name)',
        )
    return first

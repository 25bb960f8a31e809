"""Merging by a function of numbers: computed in F32 or F64 by NumPy, and rounded to the first model's dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import adapter_for
from tensorkeep.arrays.elements import castable
from tensorkeep.checkpoint import refuse_quantized
from tensorkeep.dtypes import BY_NAME, DType
from tensorkeep.errors import RefusedError
from tensorkeep.tensors import LazyTensor, LazyTensors, Scope, TensorView, combine_each, require_open
from tensorkeep.texts import listed

Numbers: TypeAlias = npt.NDArray[Any]

Merge: TypeAlias = Callable[..., Numbers]
"""Takes the numbers of each model's tensor, F32 or F64, and returns others of the same shape and dtype.

The numbers are copies, which it may overwrite.
"""

_BLOCK_LENGTH: Final = 2**16
"""Numbers to compute with at a time: in F32 those of a few models stay in the L2 cache."""

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
    require_open(*models)
    for model in models:
        refuse_quantized(model)

    def compute_of(name: str) -> Callable[..., Any]:
        tensors = [model[name] for model in models]
        _check_shapes(name, tensors, models)
        if not all(lazy.is_floating_point for lazy in tensors):
            _check_dtypes(name, tensors, models)
            return _CHOSEN.get(integers) or partial(_the_same, name, [model.path for model in models])
        in_wide = computed_in_blocks if scope == "elements" else computed_in_wide
        return in_wide(merge_of(name), [lazy.dtype for lazy in tensors])

    return combine_each(compute_of, models, scope=scope, framework="numpy", in_threads=True)


def _check_shapes(name: str, tensors: Sequence[LazyTensor], models: Sequence[LazyTensors]) -> None:
    if len({lazy.shape for lazy in tensors}) > 1:
        raise RefusedError(
            f"tensor `{name}` has another shape in another model",
            tensor=name,
            expected="models of one architecture and vocabulary",
            found=_of_each([str(list(lazy.shape)) for lazy in tensors], models),
            hint="Drop it from each (`.drop(name)`) and take it from one model, or bring it to one shape with `.map`",
        )


def _check_dtypes(name: str, tensors: Sequence[LazyTensor], models: Sequence[LazyTensors]) -> None:
    if len({lazy.dtype for lazy in tensors}) > 1:
        raise RefusedError(
            f"tensor `{name}` has another dtype in another model, and is not floating point in all",
            tensor=name,
            expected="one dtype",
            found=_of_each([lazy.dtype for lazy in tensors], models),
            hint="Drop it from each (`.drop(name)`) and take it from one model",
        )


def _of_each(facts: Sequence[str], models: Sequence[LazyTensors]) -> str:
    return listed(f"{fact} in {model.path}" for fact, model in zip(facts, models, strict=True))


def computed_in_wide(merge: Merge, dtypes: Sequence[str]) -> Callable[..., Numbers]:
    """Return a function of tensors as they are stored: in F64 if one is, else F32, rounded to the first's dtype."""
    return partial(_in_wide, merge, wide_dtype(dtypes), BY_NAME[dtypes[0]])


def computed_in_blocks(merge: Merge, dtypes: Sequence[str]) -> Callable[..., Numbers]:
    """Return such a function for an elementwise merge, which is called for short blocks."""
    return partial(_in_blocks, merge, wide_dtype(dtypes), BY_NAME[dtypes[0]])


def wide_dtype(dtypes: Sequence[str]) -> DType:
    """Return the dtype to compute in."""
    return BY_NAME["F64" if "F64" in dtypes else "F32"]


def _in_wide(merge: Merge, wide: DType, narrow: DType, *stored: Any) -> Numbers:
    arrays = adapter_for("numpy")
    with np.errstate(all="ignore"):  # a model may hold infinities
        numbers: Numbers = arrays.cast(merge(*(arrays.cast(tensor, wide) for tensor in stored)), narrow)
    return numbers


def _in_blocks(merge: Merge, wide: DType, narrow: DType, *stored: Any) -> Numbers:
    flat = [tensor.reshape(-1) for tensor in stored]
    merged_numbers = np.empty(len(flat[0]), flat[0].dtype)
    rooms = [room_for(wide, (min(_BLOCK_LENGTH, len(flat[0])),)) for _ in flat]
    with np.errstate(all="ignore"):  # a model may hold infinities
        for block in blocks_of(len(merged_numbers)):
            numbers = [widened(tensor[block], room) for tensor, room in zip(flat, rooms, strict=True)]
            merged_numbers[block] = castable(merge(*numbers), narrow)
    return merged_numbers.reshape(stored[0].shape)


def room_for(wide: DType, shape: tuple[int, ...]) -> Numbers:
    """Return memory for one block, used again: memory that is new to the process costs more than computing in it."""
    return np.empty(shape, f"f{wide.bits // 8}")


def widened(stored: Numbers, room: Numbers) -> Numbers:
    """Return stored numbers as wider ones, in the first rows of memory that is used again."""
    numbers = room[: len(stored)]
    numbers[...] = stored
    return numbers


def blocks_of(length: int, step: int = _BLOCK_LENGTH) -> Iterator[slice]:
    """Cut a length into short pieces."""
    return (slice(start, start + step) for start in range(0, length, step))


def _the_same(name: str, paths: Sequence[str], *stored: Any) -> Any:
    """Return the first of tensors that must be equal, such as positions and counters."""
    first = stored[0]
    others = zip(paths[1:], stored[1:], strict=True)
    differing = [path for path, other in others if not np.array_equal(_bytes_of(first), _bytes_of(other))]
    if differing:
        raise RefusedError(
            f"tensor `{name}` differs between the models, and is not floating point",
            path=paths[0],
            tensor=name,
            expected="floating-point numbers, or the same values in all models",
            found=f"{first.dtype}, with other values in {listed(differing)}",
            hint='`average` and `ema` take the last one with integers="last"; or drop it from each with .drop(name)',
        )
    return first


def _bytes_of(array: Numbers) -> Numbers:
    """Return the bytes of an array: a NaN equals itself."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)

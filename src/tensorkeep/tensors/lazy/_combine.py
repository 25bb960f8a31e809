"""Computed tensors: one for each name, of the tensors of that name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tensorkeep.arrays import ArrayT
from tensorkeep.errors import TensorNotFoundError
from tensorkeep.tensors.lazy._computed import Scope, computed_tensor
from tensorkeep.tensors.lazy._mapping import LazyTensors, TensorView
from tensorkeep.tensors.lazy._name_patterns import Selector, selectors_of
from tensorkeep.texts import counted, listed


def combine(
    compute: Callable[..., Any],
    first: LazyTensors[ArrayT],
    *others: LazyTensors,
    names: Selector | Iterable[Selector] | None = None,
    scope: Scope = "tensor",
    dtype: Any = None,
    shape: tuple[int, ...] | None = None,
    framework: str | None = None,
) -> TensorView[ArrayT]:
    """Return a view whose tensors a function computes, when they are read, from the tensors of one name in each.

        with tensorkeep.open("a.safetensors") as a, tensorkeep.open("b.safetensors") as b:
            mean = tensorkeep.combine(lambda x, y: (x + y) / 2, a, b, scope="elements")
            tensorkeep.save(mean, "mean.safetensors")

    Args:
        compute: Takes one tensor from each, in that order, and returns a new one, of any array library.
        first: An open file, a checkpoint or a view.
        *others: More of them.
        names: Patterns or functions that choose names, as for `LazyTensors.select`; all must have each chosen name.
            If None, all must have the same names.
        scope: What one value depends on: `"tensor"`, `"rows"` or `"elements"`; see `LazyTensors.map`.
        dtype: The dtype of the results, in any usual spelling; the first tensor's if None.
        shape: The shape of the results; the first tensor's if None.
        framework: The array library whose tensors `compute` takes, on the CPU; if None, each file's own.

    Returns:
        A view with the order, the metadata and the array library of the first.

    Raises:
        TensorNotFoundError: If one of them lacks a name, or nothing is chosen (also a KeyError).
        DtypeError: If there is no such dtype, or its elements are not whole bytes (F4, F6).
        RefusedError: If the shapes do not fit the scope.
        TypeError: If `names` is neither patterns nor functions.
        ValueError: If there is no such scope.
    """
    return combine_each(
        lambda _: compute, (first, *others), names=names, scope=scope, dtype=dtype, shape=shape, framework=framework
    )


def combine_each(
    compute_of: Callable[[str], Callable[..., Any]],
    tensors: Sequence[LazyTensors],
    *,
    names: Selector | Iterable[Selector] | None = None,
    scope: Scope = "tensor",
    dtype: Any = None,
    shape: tuple[int, ...] | None = None,
    framework: str | None = None,
    in_threads: bool = False,
) -> TensorView:
    """Do as `combine`, with a function for each name, which several threads may call for parts of one tensor."""
    if not tensors:
        raise TypeError("there is nothing to compute from: give open files, checkpoints or views")
    require_open(*tensors)
    first = tensors[0] if names is None else tensors[0].select(*selectors_of(names))
    for other in tensors:
        _check_names(first, other, only=names is not None)
    computed = {
        name: computed_tensor(
            name,
            compute_of(name),
            tuple(each[name] for each in tensors),
            scope=scope,
            dtype=dtype,
            shape=shape,
            framework=framework,
            in_threads=in_threads,
        )
        for name in first
    }
    same = all((lazy.dtype, lazy.shape) == (first[name].dtype, first[name].shape) for name, lazy in computed.items())
    metadata = first.metadata if first.has_metadata else None
    paths = dict.fromkeys(each.path for each in tensors)
    return TensorView(
        computed,
        path=" and ".join(paths),
        metadata=metadata,
        state=first.state if same else None,
        beside=first if len(paths) == 1 else None,
    )


def require_open(*given: object) -> None:
    """Refuse paths and dicts where open tensors are needed."""
    for one in given:
        if not isinstance(one, LazyTensors):
            raise TypeError(
                f"open files, checkpoints or views are needed, not {type(one).__name__}: tensorkeep.open(path)"
            )


def _check_names(first: LazyTensors, other: LazyTensors, *, only: bool) -> None:
    """Refuse to leave out a tensor that not all have."""
    missing = [name for name in first if name not in other]
    extra = [] if only else [name for name in other if name not in first]
    if missing or extra:
        lacks, absent = (other, missing) if missing else (first, extra)
        raise TensorNotFoundError(
            f"{counted(len(absent), 'tensor')} of the others {'is' if len(absent) == 1 else 'are'} not here",
            path=lacks.path,
            expected=listed(f"`{name}`" for name in absent),
            hint="Choose the tensors that all have: `.select` and `.drop` of each (--select and --drop)",
        )

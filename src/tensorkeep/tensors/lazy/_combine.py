"""Computed tensors: one for each name, of the tensors of that name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tensorkeep.errors import TensorNotFoundError
from tensorkeep.phrases import counted, listed
from tensorkeep.tensors.lazy._computed import Scope, computed_tensor
from tensorkeep.tensors.lazy._mapping import LazyTensors, TensorView
from tensorkeep.tensors.lazy._name_patterns import Selector, selectors_of


def combine(
    compute: Callable[..., Any],
    *tensors: LazyTensors,
    names: Selector | Iterable[Selector] | None = None,
    scope: Scope = "tensor",
    dtype: Any = None,
    shape: tuple[int, ...] | None = None,
) -> TensorView:
    """Return a view of tensors that a function computes, when they are read, of the tensors of one name in each.

        with tensorkeep.open("a.safetensors") as a, tensorkeep.open("b.safetensors") as b:
            mean = tensorkeep.combine(lambda x, y: (x + y) / 2, a, b, scope="elements")
            tensorkeep.save(mean, "mean.safetensors")

    Args:
        compute: Takes a tensor of each, in that order, and returns one of the same library or of NumPy. Each tensor
            is of the framework that its file was opened for.
        *tensors: Open files, checkpoints or views; at least one.
        names: Patterns or functions that choose names, as for `LazyTensors.select`; each chosen name must be in all.
            If None, all must have the same names.
        scope: What one value depends on: `"tensor"`, `"rows"` or `"elements"`; see `LazyTensors.map`.
        dtype: The dtype of the results, in any usual spelling; the first tensor's if None.
        shape: The shape of the results; the first tensor's if None.

    Returns:
        The view, in the order and with the metadata of the first.

    Raises:
        TensorNotFoundError: If a name is not in all, or nothing is chosen (also a KeyError).
        DtypeError: If there is no such dtype, or its elements are not whole bytes (F4, F6).
        RefusedError: If the shapes do not fit the scope.
        TypeError: If there are no tensors, or `names` is neither patterns nor functions.
        ValueError: If there is no such scope.
    """
    if not tensors:
        raise TypeError("combine() needs tensors to compute from: open files, checkpoints or views")
    chosen = tensors[0] if names is None else tensors[0].select(*selectors_of(names))
    for other in tensors:
        _check_names(chosen, other, only=names is not None)
    computed = {
        name: computed_tensor(
            name, compute, tuple(each[name] for each in tensors), scope=scope, dtype=dtype, shape=shape
        )
        for name in chosen
    }
    same = all(
        (lazy.dtype, lazy.shape) == (chosen[name].dtype, chosen[name].shape) for name, lazy in computed.items()
    )
    metadata = chosen.metadata if chosen.has_metadata else None
    path = " and ".join(dict.fromkeys(each.path for each in tensors))
    return TensorView(computed, path=path, metadata=metadata, state=chosen.state if same else None)


def _check_names(chosen: LazyTensors, other: LazyTensors, *, only: bool) -> None:
    """Refuse to leave out a tensor that not all have."""
    missing = [name for name in chosen if name not in other]
    extra = [] if only else [name for name in other if name not in chosen]
    if missing or extra:
        lacks, absent = (other, missing) if missing else (chosen, extra)
        raise TensorNotFoundError(
            f"{counted(len(absent), 'tensor')} of the others {'is' if len(absent) == 1 else 'are'} not here",
            path=lacks.path,
            expected=listed(f"`{name}`" for name in absent),
            hint="names= chooses the tensors to combine",
        )

"""Which tensor of a checkpoint goes into which tensor of a model, and in what dtype. Loads nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from tensorkeep.dtypes import find_dtype, torch_row
from tensorkeep.errors import DtypeError
from tensorkeep.models import Match, ShapeMismatch, equal_stored, mismatch_error, tie_conflicts, tie_error
from tensorkeep.tensors import LazyTensor, LazyTensors, TensorView


def cast_to_model(
    tensors: LazyTensors, model: nn.Module, dtype: torch.dtype | None, in_fp32: Sequence[str]
) -> LazyTensors:
    """Return a view of a checkpoint in the dtypes that the model is to have."""
    own = model.state_dict(keep_vars=True)
    cast = {name: _cast(lazy, _wanted(name, own.get(name), dtype, in_fp32)) for name, lazy in tensors.items()}
    return TensorView(cast, path=tensors.path, metadata=tensors.metadata, beside=tensors)


def _wanted(name: str, tensor: Any, dtype: torch.dtype | None, in_fp32: Sequence[str]) -> torch.dtype | None:
    if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
        return None
    if dtype is torch.float16 and any(f".{module}." in f".{name}." for module in in_fp32):
        return torch.float32
    return dtype or tensor.dtype


def _cast(lazy: LazyTensor, wanted: torch.dtype | None) -> LazyTensor:
    row = torch_row(wanted)
    return lazy if row is None or row.name == lazy.dtype or not lazy.is_floating_point else lazy.cast(wanted)


def torch_dtype_of(lazy: LazyTensor) -> torch.dtype:
    """Return the torch dtype of a lazy tensor."""
    found = getattr(torch, find_dtype(lazy.dtype).torch or "", None)
    if not isinstance(found, torch.dtype):
        raise DtypeError("torch has no such dtype", tensor=lazy.name, found=lazy.dtype)
    return found


def match(model: nn.Module, tensors: LazyTensors, *, strict: bool) -> dict[str, LazyTensor]:
    """Find the tensor of a checkpoint for each name of a model, or refuse names and shapes that do not fit."""
    own = model.state_dict(keep_vars=True)
    found = dict(_found(own, tensors))
    used = {lazy.name for lazy in found.values()}
    missing = [name for name, value in own.items() if name not in found and not _is_idle_counter(name, value)]
    unexpected = [name for name in tensors if name not in own and name not in used]
    mismatched = [
        ShapeMismatch(name, tuple(own[name].shape), lazy.shape)
        for name, lazy in found.items()
        if isinstance(own[name], torch.Tensor) and tuple(own[name].shape) != lazy.shape
    ]
    if not strict:
        missing, unexpected = [], []
    if missing or unexpected or mismatched:
        raise mismatch_error(
            Match((), tuple(missing), tuple(unexpected), tuple(mismatched)),
            type(model).__name__,
            tensors.path,
            hint=_advice(model, is_missing=bool(missing), is_unexpected=bool(unexpected)),
        )
    return found


def check_ties(model: nn.Module, found: Mapping[str, LazyTensor], path: str) -> None:
    """Refuse saved tensors that differ but that the model ties, since only one of them can be loaded."""
    own = model.state_dict(keep_vars=True)
    names: dict[int, list[str]] = {}
    for name in found:
        if isinstance(own[name], torch.Tensor):
            names.setdefault(id(own[name]), []).append(name)
    conflicts = list(tie_conflicts(((group, group[-1]) for group in names.values()), found, equal_stored))
    if conflicts:
        raise tie_error(conflicts, model, path)


def _found(own: Mapping[str, Any], tensors: LazyTensors) -> Iterator[tuple[str, LazyTensor]]:
    """Yield the tensor for each name: its own, the one stored in its place, or one that the model ties it to."""
    noted = tensors.metadata
    by_tensor: dict[int, LazyTensor] = {}
    absent: list[str] = []
    for name, value in own.items():
        source = name if name in tensors else noted.get(name)
        if source is not None and source in tensors:
            by_tensor[id(value)] = tensors[source]
            yield name, tensors[source]
        elif isinstance(value, torch.Tensor):
            absent.append(name)
    yield from ((name, by_tensor[id(own[name])]) for name in absent if id(own[name]) in by_tensor)


def _is_idle_counter(name: str, value: Any) -> bool:
    """Whether this is a normalization's counter of batches that has a value, so that a checkpoint may lack it."""
    return name.rpartition(".")[2] == "num_batches_tracked" and isinstance(value, torch.Tensor) and not value.is_meta


def _advice(model: nn.Module, *, is_missing: bool, is_unexpected: bool) -> str:
    if is_missing and hasattr(model, "tie_weights"):
        return "Nothing was loaded; if the model ties such a weight to another one, call model.tie_weights() first"
    if is_missing or is_unexpected:
        return "Nothing was loaded; strict=False loads only names that both have"
    return "Nothing was loaded"

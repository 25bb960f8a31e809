"""Which tensor of a checkpoint is which of a model, and what dtype it is to have. Nothing is read or changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from tensorkeep.checkpoint import have_equal_bytes
from tensorkeep.dtypes import BY_TORCH, find_dtype
from tensorkeep.errors import DtypeError, StateDictMismatchError
from tensorkeep.phrases import listed
from tensorkeep.tensors import LazyTensor, LazyTensors, TensorView

"""Names of each kind that a message lists; the error's fields have all."""


def cast_to_model(
    tensors: LazyTensors, model: nn.Module, dtype: torch.dtype | None, in_fp32: Sequence[str]
) -> LazyTensors:
    """Return the tensors of a checkpoint in the dtypes that a model is to have."""
    own = model.state_dict(keep_vars=True)
    cast = {name: _cast(lazy, _wanted(name, own.get(name), dtype, in_fp32)) for name, lazy in tensors.items()}
    return TensorView(cast, path=tensors.path, metadata=tensors.metadata)


def _wanted(name: str, tensor: Any, dtype: torch.dtype | None, in_fp32: Sequence[str]) -> torch.dtype | None:
    if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
        return None
    if dtype is torch.float16 and any(f".{module}." in f".{name}." for module in in_fp32):
        return torch.float32
    return dtype or tensor.dtype


def _cast(lazy: LazyTensor, wanted: torch.dtype | None) -> LazyTensor:
    row = BY_TORCH.get(str(wanted).removeprefix("torch."))
    return lazy if row is None or row.name == lazy.dtype or not lazy.is_floating_point else lazy.cast(wanted)


def torch_dtype_of(lazy: LazyTensor) -> torch.dtype:
    """Return torch's dtype of a lazy tensor."""
    found = getattr(torch, find_dtype(lazy.dtype).torch or "", None)
    if not isinstance(found, torch.dtype):
        raise DtypeError("torch has no such dtype", tensor=lazy.name, found=lazy.dtype)
    return found


def match(model: nn.Module, tensors: LazyTensors, *, strict: bool) -> dict[str, LazyTensor]:
    """Find the tensor of a checkpoint for each name of a model."""
    own = model.state_dict(keep_vars=True)
    found = dict(_found(own, tensors))
    used = {lazy.name for lazy in found.values()}
    missing = [name for name, value in own.items() if name not in found and not _is_idle_counter(name, value)]
    unexpected = [name for name in tensors if name not in own and name not in used]
    mismatched = [
        (name, tuple(own[name].shape), lazy.shape)
        for name, lazy in found.items()
        if isinstance(own[name], torch.Tensor) and tuple(own[name].shape) != lazy.shape
    ]
    if mismatched or (strict and (missing or unexpected)):
        _refuse(model, tensors.path, missing if strict else [], unexpected if strict else [], mismatched)
    return found


def check_ties(model: nn.Module, found: Mapping[str, LazyTensor], path: str) -> None:
    """Make sure that weights which a model ties are equal in a checkpoint, since only one of them can be loaded."""
    own = model.state_dict(keep_vars=True)
    first_names: dict[int, str] = {}
    for name, lazy in found.items():
        first = first_names.setdefault(id(own[name]), name)
        if isinstance(own[name], torch.Tensor) and not _are_equal(found[first], lazy):
            raise StateDictMismatchError(
                f"the checkpoint does not fit {type(model).__name__}, which ties {name} to {first}",
                path=path,
                expected="equal tensors, or one of them",
                found="two that differ",
                hint="Nothing was loaded; untie them in the model, or let strict=False take one of them",
                unexpected=[name],
            )


def _are_equal(one: LazyTensor, other: LazyTensor) -> bool:
    if one.dtype != other.dtype:
        return False
    if one is other or (one.span is not None and (one.source, one.span) == (other.source, other.span)):
        return True
    if one.digest is not None and other.digest is not None:
        return one.digest == other.digest
    return have_equal_bytes(one, other, lambda _: None)


def _found(own: Mapping[str, Any], tensors: LazyTensors) -> Iterator[tuple[str, LazyTensor]]:
    """Give the tensor for each name: its own, the one that stands for it in the file, or one that it is tied to."""
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
    """Whether this is the counter of a normalisation, which old checkpoints lack and torch does not ask for."""
    return name.rpartition(".")[2] == "num_batches_tracked" and isinstance(value, torch.Tensor) and not value.is_meta


def _refuse(
    model: nn.Module,
    path: str,
    missing: Sequence[str],
    unexpected: Sequence[str],
    mismatched: Sequence[tuple[str, tuple[int, ...], tuple[int, ...]]],
) -> None:
    shapes = [f"{name} {list(here)} in the model, {list(there)} in the file" for name, here, there in mismatched]
    facts = [
        f"{len(names):,} {kind}: {listed(names)}"
        for kind, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", shapes))
        if names
    ]
    raise StateDictMismatchError(
        f"the checkpoint does not fit {type(model).__name__}: {'; '.join(facts)}",
        path=path,
        hint=_advice(model, missing, unexpected),
        missing=missing,
        unexpected=unexpected,
        mismatched=mismatched,
    )


def _advice(model: nn.Module, missing: Sequence[str], unexpected: Sequence[str]) -> str | None:
    if missing and hasattr(model, "tie_weights"):
        return "Nothing was loaded; where the model ties such a weight to another, call model.tie_weights() before"
    if missing or unexpected:
        return "Nothing was loaded; strict=False leaves out names that only one of the two has"
    return None

"""State dicts of modules: under the same names whatever wraps the module, and checked before they are loaded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from tensorkeep.arrays.torch.partitioned import refuse_partitioned
from tensorkeep.errors import StateDictMismatchError, UnsupportedError
from tensorkeep.models import (
    Match,
    ShapeMismatch,
    equal_loaded,
    is_batch_counter,
    memory_key,
    mismatch_error,
    tie_conflicts,
    tie_error,
)

_PREFIXES: Final = ("module.", "_orig_mod.")
"""Prefixes of names that other programs saved from a wrapped model."""


def module_state(module: nn.Module) -> dict[str, Any]:
    """Return the state dict of a module under the names that it has without wrappers."""
    inner = _unwrapped(module)
    refuse_partitioned(inner)
    state: dict[str, Any] = inner.state_dict()
    plain = _plain_names(inner)
    return state if plain is None else _renamed(state, {name: plain(name) for name in state}, plain)


def check_module(module: nn.Module, saved: Any, part: str, *, strict: bool) -> None:
    """Check that a state dict fits a module, as far as possible without loading it.

    Modules that override loading are left to their own checks.
    """
    inner = _unwrapped(module)
    own = inner.state_dict()
    for name, value in own.items():
        if isinstance(value, torch.Tensor) and value.is_meta:
            raise UnsupportedError(
                f"`{name}` of {part} has no data (device meta): there is nothing to write into",
                tensor=name,
                hint="Give it memory first, with to_empty(device=...)",
            )
    if not isinstance(saved, Mapping) or not all(isinstance(name, str) for name in saved):
        raise StateDictMismatchError(f"{part} is not a state dict in the checkpoint", found=type(saved).__name__)
    fitted = _for_module(inner, saved)
    if all(map(_loads_as_usual, inner.modules())):
        _check_names(inner, own, fitted, part, strict=strict)
    if strict:
        _refuse_own_memory(own, fitted, part)
        _check_ties(inner, own, fitted, part)


def load_module(module: nn.Module, saved: Mapping[str, Any], *, strict: bool) -> None:
    """Load a state dict into a module, in the memory that it has."""
    inner = _unwrapped(module)
    inner.load_state_dict(_for_module(inner, saved), strict=strict)


def _for_module(inner: nn.Module, saved: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a state dict under the names that a module has now."""
    own = inner.state_dict()
    while (prefix := _wrapper_prefix(own, saved)) is not None:
        saved = _renamed(saved, {name: name.removeprefix(prefix) for name in saved}, _without(prefix))
    plain = _plain_names(inner)
    if plain is None:
        return saved
    back = {plain(name): name for name in own}
    restored = _renamed(saved, {name: back.get(plain(name), name) for name in saved}, lambda name: name)
    metadata = getattr(saved, "_metadata", {})
    named = {name: metadata[key] for name, _ in inner.named_modules() if (key := _of_module(name, plain)) in metadata}
    restored._metadata = named  # type: ignore[attr-defined]  # torch keeps versions of modules there
    return restored


def _wrapper_prefix(own: Mapping[str, Any], saved: Mapping[str, Any]) -> str | None:
    """Return a wrapper's prefix that all saved names have, and none of the module's names."""
    for prefix in _PREFIXES if saved else ():
        if all(name.startswith(prefix) for name in saved) and not any(name.startswith(prefix) for name in own):
            return prefix
    return None


def _without(prefix: str) -> Callable[[str], str]:
    return lambda name: name.removeprefix(prefix)


def _renamed(
    state: Mapping[str, Any], names: Mapping[str, str], of_module: Callable[[str], str]
) -> OrderedDict[str, Any]:
    """Return a state dict under other names; `of_module` renames modules, given with a final dot."""
    renamed = OrderedDict((names[name], value) for name, value in state.items())
    metadata = getattr(state, "_metadata", None)
    if metadata is not None:
        versions = {_of_module(name, of_module): version for name, version in metadata.items()}
        renamed._metadata = OrderedDict(versions)  # type: ignore[attr-defined]
    return renamed


def _of_module(name: str, rename: Callable[[str], str]) -> str:
    return rename(name + ".").removesuffix(".") if name else name


def _unwrapped(module: nn.Module) -> nn.Module:
    while (attribute := _wraps(module)) is not None:
        module = getattr(module, attribute)
    return module


def _wraps(module: nn.Module) -> str | None:
    """Return the attribute that holds the wrapped module, or None if the module is not a wrapper."""
    if isinstance(module, DataParallel | DistributedDataParallel):
        return "module"
    return "_orig_mod" if "_orig_mod" in module._modules else None  # of torch.compile


def _plain_names(module: nn.Module) -> Callable[[str], str] | None:
    """Return a function that removes wrappers' attributes from a name, or None if the module contains no wrappers."""
    wrappers = [
        (f"{prefix}.{attribute}.", f"{prefix}.")
        for prefix, inner in module.named_modules(remove_duplicate=False)
        if (attribute := _wraps(inner)) is not None
    ]

    def plain(name: str) -> str:
        for wrapped, bare in reversed(wrappers):  # the innermost first
            if name.startswith(wrapped):
                name = bare + name.removeprefix(wrapped)
        return name

    return plain if wrappers else None


def _loads_as_usual(module: nn.Module) -> bool:
    """Whether loading a module is plain torch: entries of the state dict, under the names it gives."""
    plain_loaders = (nn.Module, nn.modules.batchnorm._NormBase)
    return (
        type(module).load_state_dict is nn.Module.load_state_dict
        and any(type(module)._load_from_state_dict is known._load_from_state_dict for known in plain_loaders)
        and not module._load_state_dict_pre_hooks
    )


def _is_optional(module: nn.Module, name: str) -> bool:
    owner, _, attribute = name.rpartition(".")
    return attribute == "num_batches_tracked" and is_batch_counter(module.get_submodule(owner), attribute)


def _check_names(
    module: nn.Module, own: Mapping[str, Any], saved: Mapping[str, Any], part: str, *, strict: bool
) -> None:
    missing = [name for name in own if name not in saved and not _is_optional(module, name)] if strict else []
    unexpected = [name for name in saved if name not in own] if strict else []
    mismatched = [
        ShapeMismatch(name, tuple(value.shape), tuple(saved[name].shape))
        for name, value in own.items()
        if _has_shape(value) and _has_shape(saved.get(name)) and value.shape != saved[name].shape
    ]
    lossy = [
        f"`{name}` {value.dtype} in the model, {saved[name].dtype} saved"
        for name, value in own.items()
        if strict and _has_shape(value) and _has_shape(saved.get(name)) and not _can_hold(value, saved[name])
    ]
    if not (missing or unexpected or mismatched or lossy):
        return
    raise mismatch_error(
        Match((), tuple(missing), tuple(unexpected), tuple(mismatched)),
        type(module).__name__,
        part=part,
        lossy=lossy,
        hint="Nothing was changed" if mismatched else "Nothing was changed; strict=False loads the names that fit",
    )


def _can_hold(value: torch.Tensor, saved: torch.Tensor) -> bool:
    """Whether a tensor can hold the values of another, except for rounding: an integer cannot hold fractions."""
    return torch.can_cast(saved.dtype, value.dtype)


def _check_ties(module: nn.Module, own: Mapping[str, Any], saved: Mapping[str, Any], part: str) -> None:
    """Refuse saved tensors that differ but would go into the same memory."""
    names: dict[Hashable, list[str]] = {}
    tensors: dict[str, torch.Tensor] = {}
    for name, value in own.items():
        item: Any = saved.get(name)
        if _is_dense(value) and _is_dense(item) and value.data_ptr() and value.shape == item.shape:
            order = sorted(range(value.ndim), key=value.stride, reverse=True)  # a weight may be tied to its transpose
            names.setdefault(memory_key(value.permute(order)), []).append(name)
            tensors[name] = item.permute(order)
    tied = ((group, group[-1]) for group in names.values())  # load_state_dict writes the last one last
    conflict = next(tie_conflicts(tied, tensors, equal_loaded), None)
    if conflict is not None:
        raise tie_error([conflict], module, part=part)


def _refuse_own_memory(own: Mapping[str, Any], saved: Mapping[str, Any], part: str) -> None:
    """Refuse a state whose tensors are the module's own: training has changed them since."""
    for name, value in own.items():
        item: Any = saved.get(name)
        is_comparable = _is_dense(value) and _is_dense(item) and value.device == item.device
        if is_comparable and value.data_ptr() and value.data_ptr() == item.data_ptr():
            raise StateDictMismatchError(
                f"`{name}` of {part} is the tensor of the model itself, which training has changed since the capture",
                hint="Nothing was changed. Save the state, or keep copy.deepcopy(capture(...))",
            )


def _is_dense(value: Any) -> bool:
    return type(value) in {torch.Tensor, nn.Parameter} and value.layout == torch.strided and not value.is_quantized


def _has_shape(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not nn.parameter.is_lazy(value)

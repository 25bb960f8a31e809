"""State dicts of modules: under the same names whatever wraps the module, and held against it before it is loaded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from tensorkeep.errors import StateDictMismatchError, UnsupportedError
from tensorkeep.phrases import listed
from tensorkeep.training._ties import check_apart, check_ties

_PREFIXES: Final = ("module.", "_orig_mod.")
"""What names begin with that others saved from a wrapped model."""

"""Names of each kind that a message lists; the error's fields have all."""


def module_state(module: nn.Module) -> dict[str, Any]:
    """Return the state dict of a module under the names that it has when nothing wraps it."""
    inner = _unwrapped(module)
    state: dict[str, Any] = inner.state_dict()
    plain = _plain_names(inner)
    return state if plain is None else _renamed(state, {name: plain(name) for name in state}, plain)


def check_module(module: nn.Module, saved: Any, part: str, *, strict: bool) -> None:
    """Make sure that a state dict fits a module, as far as that can be known without loading it.

    Modules that load in a way of their own are left to their own checks.
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
        raise StateDictMismatchError(f"{part} is no state dict in the checkpoint", found=type(saved).__name__)
    fitted = _for_module(inner, saved)
    if all(map(_loads_as_usual, inner.modules())):
        _check_names(inner, own, fitted, part, strict=strict)
    if strict:
        check_apart(own, fitted, part)
        check_ties(inner, own, fitted, part)


def load_module(module: nn.Module, saved: Mapping[str, Any], *, strict: bool) -> None:
    """Load a state dict into a module, in the memory that it has."""
    inner = _unwrapped(module)
    inner.load_state_dict(_for_module(inner, saved), strict=strict)


def _for_module(inner: nn.Module, saved: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a state dict under the names that a module has now."""
    own = inner.state_dict()
    while (prefix := _strange_prefix(own, saved)) is not None:
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


def _strange_prefix(own: Mapping[str, Any], saved: Mapping[str, Any]) -> str | None:
    """Return what a wrapper put before all names that were saved, and that the module has before none."""
    for prefix in _PREFIXES if saved else ():
        if all(name.startswith(prefix) for name in saved) and not any(name.startswith(prefix) for name in own):
            return prefix
    return None


def _without(prefix: str) -> Callable[[str], str]:
    return lambda name: name.removeprefix(prefix)


def _renamed(
    state: Mapping[str, Any], names: Mapping[str, str], of_module: Callable[[str], str]
) -> OrderedDict[str, Any]:
    """Return a state dict under other names; a module's name ends with a dot where it is renamed."""
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
    """Return the attribute that holds what a module wraps; None where it is no wrapper."""
    if isinstance(module, DataParallel | DistributedDataParallel):
        return "module"
    return "_orig_mod" if "_orig_mod" in module._modules else None  # of torch.compile


def _plain_names(module: nn.Module) -> Callable[[str], str] | None:
    """Return what takes the names of wrappers out of a name; None where there are none within the module."""
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
    """Whether a module takes what its state dict gives, and nothing else."""
    own_ways = (nn.Module, nn.modules.batchnorm._NormBase)
    return (
        type(module).load_state_dict is nn.Module.load_state_dict
        and any(type(module)._load_from_state_dict is known._load_from_state_dict for known in own_ways)
        and not module._load_state_dict_pre_hooks
    )


def _is_counter(module: nn.Module, name: str) -> bool:
    """Whether this is the counter of a normalisation, which old checkpoints lack and torch does not ask for."""
    owner, _, attribute = name.rpartition(".")
    normalisation = attribute == "num_batches_tracked"
    return normalisation and isinstance(module.get_submodule(owner), nn.modules.batchnorm._NormBase)


def _check_names(
    module: nn.Module, own: Mapping[str, Any], saved: Mapping[str, Any], part: str, *, strict: bool
) -> None:
    missing = [name for name in own if name not in saved and not _is_counter(module, name)] if strict else []
    unexpected = [name for name in saved if name not in own] if strict else []
    mismatched = [
        (name, tuple(value.shape), tuple(saved[name].shape))
        for name, value in own.items()
        if _has_shape(value) and _has_shape(saved.get(name)) and value.shape != saved[name].shape
    ]
    lossy = [
        f"{name} {value.dtype} in the model, {saved[name].dtype} saved"
        for name, value in own.items()
        if strict and _has_shape(value) and _has_shape(saved.get(name)) and not _can_hold(value, saved[name])
    ]
    if not (missing or unexpected or mismatched or lossy):
        return
    shapes = [f"{name} {list(here)} in the model, {list(there)} saved" for name, here, there in mismatched]
    facts = [
        f"{len(items):,} {kind}: {listed(items)}"
        for kind, items in (
            ("missing", missing),
            ("unexpected", unexpected),
            ("of another shape", shapes),
            ("of numbers that would be cut", lossy),
        )
        if items
    ]
    raise StateDictMismatchError(
        f"{part} does not fit {type(module).__name__}: {'; '.join(facts)}",
        hint="Nothing was changed" if mismatched else "Nothing was changed; strict=False loads the names that fit",
        missing=missing,
        unexpected=unexpected,
        mismatched=mismatched,
    )


def _can_hold(value: torch.Tensor, saved: torch.Tensor) -> bool:
    """Whether a tensor can have the numbers of another, if perhaps fewer digits of them: an integer no fractions."""
    return torch.can_cast(saved.dtype, value.dtype)


def _has_shape(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not nn.parameter.is_lazy(value)

"""The memory of a model's parameters and buffers, and the names and modules that it belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import msgspec
import torch
from torch import nn

from tensorkeep.errors import UnsupportedError


class Slot(msgspec.Struct, frozen=True, eq=False):
    """Memory that a model keeps numbers in, once however many names it has.

    Attributes:
        names: Those that the model's state dict has for it; none for buffers that are not saved.
        tensors: The parameters or buffers over it: one, or several that share it element for element.
        places: Modules, and their attributes, that hold these tensors.
        is_optional: Whether a checkpoint may do without it.
    """

    names: tuple[str, ...]
    tensors: tuple[torch.Tensor, ...]
    places: tuple[tuple[nn.Module, str], ...]
    is_optional: bool

    @property
    def tensor(self) -> torch.Tensor:
        """One of the tensors."""
        return self.tensors[0]

    def covers(self, other: Slot) -> bool:
        """Say whether every byte of another slot is one of this one's."""
        mine, theirs = self.tensor, other.tensor
        if mine.is_meta or theirs.is_meta or mine.device != theirs.device:
            return False
        n_reached = _n_reached(mine)
        first, stop = mine.data_ptr(), mine.data_ptr() + n_reached * mine.element_size()
        return (
            bool(theirs.numel())
            and n_reached == mine.numel()
            and first <= theirs.data_ptr()
            and theirs.data_ptr() + _n_reached(theirs) * theirs.element_size() <= stop
        )


class ModelState(msgspec.Struct, frozen=True, eq=False):
    """All that a model keeps.

    Attributes:
        slots: Its tensors, in the order of its state dict; those that are not saved at the end.
        extras: Names of what is no parameter and no buffer (`get_extra_state`), and the module that takes it, or None
            where no module does.
    """

    slots: tuple[Slot, ...]
    extras: dict[str, nn.Module | None]


class _Draft:
    """A slot in the making."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.tensors: list[torch.Tensor] = []
        self.places: list[tuple[nn.Module, str]] = []
        self.is_optional = True

    def add(self, module: nn.Module, attribute: str, tensor: torch.Tensor) -> None:
        if all(tensor is not other for other in self.tensors):
            self.tensors.append(tensor)
        if all((module, attribute) != place for place in self.places):
            self.places.append((module, attribute))
        self.is_optional &= _is_counter(module, attribute)

    def finish(self) -> Slot:
        return Slot(tuple(self.names), tuple(self.tensors), tuple(self.places), self.is_optional)


def state_of(model: nn.Module) -> ModelState:
    """Find the tensors of a model and their names."""
    drafts: dict[Any, _Draft] = {}
    takers: dict[str, nn.Module] = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        start = f"{prefix}." if prefix else ""
        if type(module).set_extra_state is not nn.Module.set_extra_state:
            takers[f"{start}_extra_state"] = module
        for attribute, tensor in _tensors_of(module):
            _check(start + attribute, tensor)
            drafts.setdefault(_memory(tensor), _Draft()).add(module, attribute, tensor)
    extras: dict[str, nn.Module | None] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        if name in takers or not isinstance(value, torch.Tensor):
            extras[name] = takers.get(name)
            continue
        _check(name, value)
        draft = drafts.get(_memory(value))
        if draft is None:
            raise UnsupportedError(
                f"`{name}` in the model's state dict is a copy: writing to it would not reach the model",
                tensor=name,
                hint="Load the tensors with tensorkeep.load, and hand them to the model's own load_state_dict",
            )
        draft.names.append(name)
    ordered = sorted(drafts.values(), key=lambda draft: not draft.names)
    return ModelState(tuple(draft.finish() for draft in ordered), extras)


def _tensors_of(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for attribute, tensor in chain(module._parameters.items(), module._buffers.items()):
        if tensor is not None:
            yield attribute, tensor


def _check(name: str, tensor: torch.Tensor) -> None:
    obstacle = None
    if nn.parameter.is_lazy(tensor):
        obstacle = "a lazy parameter, which has no shape before the first forward pass"
    elif tensor.layout != torch.strided:
        obstacle = f"layout {tensor.layout}"
    elif hasattr(tensor, "__tensor_flatten__"):
        obstacle = f"{type(tensor).__name__}, a wrapper of other tensors"
    elif tensor.is_quantized:
        obstacle = f"dtype {tensor.dtype}"
    if obstacle is not None:
        raise UnsupportedError(
            f"`{name}` of the model cannot be filled", tensor=name, expected="a dense tensor", found=obstacle
        )


def _memory(tensor: torch.Tensor) -> Any:
    """Return what is equal for tensors that share memory element for element."""
    address = 0 if tensor.is_meta else tensor.data_ptr()
    if not address:  # without data or without elements
        return id(tensor)
    return (
        tensor.device,
        address,
        tensor.dtype,
        tuple(tensor.shape),
        tensor.stride(),
        tensor.is_conj(),
        tensor.is_neg(),
    )


def _is_counter(module: nn.Module, attribute: str) -> bool:
    """Whether this is the counter of a normalisation, which old checkpoints lack and torch does not ask for."""
    return isinstance(module, nn.modules.batchnorm._NormBase) and attribute == "num_batches_tracked"


def _n_reached(tensor: torch.Tensor) -> int:
    """Return the elements from the first to the last in memory, those between that are not the tensor's included."""
    return 1 + sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))

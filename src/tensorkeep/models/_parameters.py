"""A model's parameters and buffers: their memory, and the names and modules that it belongs to."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import chain

import msgspec
import torch
from torch import nn

from tensorkeep.arrays.torch.partitioned import refuse_partitioned
from tensorkeep.errors import UnsupportedError
from tensorkeep.models._ties import memory_key


class ParameterStorage(msgspec.Struct, frozen=True, eq=False):
    """The memory of a parameter or buffer, once for all names that the model has for it.

    Attributes:
        names: In the model's state dict; none for buffers that are not saved.
        tensors: The parameters or buffers over this memory: one, or several that share it element for element.
        places: The modules, and their attributes, that hold these tensors.
        is_optional: Whether a checkpoint may lack it.
    """

    names: tuple[str, ...]
    tensors: tuple[torch.Tensor, ...]
    places: tuple[tuple[nn.Module, str], ...]
    is_optional: bool

    @property
    def tensor(self) -> torch.Tensor:
        """One of the tensors."""
        return self.tensors[0]

    def covers(self, other: ParameterStorage) -> bool:
        """Say whether all memory of another storage lies within this one's."""
        a, b = self.tensor, other.tensor
        if a.is_meta or b.is_meta or a.device != b.device:
            return False
        n_spanned = _n_spanned(a)
        start, stop = a.data_ptr(), a.data_ptr() + n_spanned * a.element_size()
        return (
            bool(b.numel())
            and n_spanned == a.numel()  # no gaps between its elements
            and start <= b.data_ptr()
            and b.data_ptr() + _n_spanned(b) * b.element_size() <= stop
        )


class ModelState(msgspec.Struct, frozen=True, eq=False):
    """What a model saves and loads.

    Attributes:
        storages: Its tensors, in the order of its state dict; unsaved ones at the end.
        extras: Names of extra state (`get_extra_state`), and the module that takes it, or None if no module does.
    """

    storages: tuple[ParameterStorage, ...]
    extras: dict[str, nn.Module | None]


class _Draft:
    """A `ParameterStorage` while it is collected."""

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
        self.is_optional &= is_batch_counter(module, attribute)

    def finish(self) -> ParameterStorage:
        return ParameterStorage(tuple(self.names), tuple(self.tensors), tuple(self.places), self.is_optional)


def state_of(model: nn.Module) -> ModelState:
    """Find the tensors of a model and their names."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"a model of torch is needed (torch.nn.Module), not {type(model).__name__}")
    refuse_partitioned(model)
    drafts: dict[Hashable, _Draft] = {}
    takers: dict[str, nn.Module] = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        start = f"{prefix}." if prefix else ""
        if type(module).set_extra_state is not nn.Module.set_extra_state:
            takers[f"{start}_extra_state"] = module
        for attribute, tensor in _tensors_of(module):
            _check_dense(start + attribute, tensor)
            drafts.setdefault(memory_key(tensor), _Draft()).add(module, attribute, tensor)
    extras: dict[str, nn.Module | None] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        if name in takers or not isinstance(value, torch.Tensor):
            extras[name] = takers.get(name)
            continue
        _check_dense(name, value)
        draft = drafts.get(memory_key(value))
        if draft is None:
            raise UnsupportedError(
                f"`{name}` in the model's state dict is a copy: writing to it would not reach the model",
                tensor=name,
                hint="Load the tensors with tensorkeep.load, and pass them to the model's own load_state_dict",
            )
        draft.names.append(name)
    ordered = sorted(drafts.values(), key=lambda draft: not draft.names)
    return ModelState(tuple(draft.finish() for draft in ordered), extras)


def is_batch_counter(module: nn.Module, attribute: str) -> bool:
    """Say whether this is a normalization's counter of batches, which torch lets old checkpoints lack."""
    return isinstance(module, nn.modules.batchnorm._NormBase) and attribute == "num_batches_tracked"


def _tensors_of(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for attribute, tensor in chain(module._parameters.items(), module._buffers.items()):
        if tensor is not None:
            yield attribute, tensor


def _check_dense(name: str, tensor: torch.Tensor) -> None:
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


def _n_spanned(tensor: torch.Tensor) -> int:
    """Count elements from the first to the last in memory, including any between that are not the tensor's."""
    return 1 + sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))

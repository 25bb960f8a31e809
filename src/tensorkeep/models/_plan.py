"""Which tensor of a checkpoint goes into which memory of a model, checked before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import msgspec
import torch
from torch import nn

from tensorkeep.arrays.torch.devices import check_device
from tensorkeep.dtypes import DType, find_dtype, torch_row
from tensorkeep.errors import DtypeError, UnsupportedError
from tensorkeep.models._match import Match, Wanted, match_tensors
from tensorkeep.models._parameters import ModelState, ParameterStorage
from tensorkeep.tensors import LazyTensor
from tensorkeep.tensors.to_device import devices_of


class Target(msgspec.Struct, frozen=True):
    """What the model's tensors are to become.

    Attributes:
        dtype: Of floating-point tensors; None to keep it.
        device: None to keep it.
        device_map: The device of each attribute of each module (by its identity); None for the same of all.
        assign: Whether the model gets the loaded tensors themselves, instead of copies of their values.
    """

    dtype: torch.dtype | None
    device: torch.device | None
    device_map: Mapping[tuple[int, str], torch.device] | None
    assign: bool

    def dtype_of(self, tensor: torch.Tensor, stored: torch.dtype | None = None) -> torch.dtype:
        """Return the dtype that a tensor of the model will have."""
        if _is_number(tensor.dtype) and self.dtype is not None:
            return self.dtype
        if self.assign and stored is not None and _is_number(stored) == _is_number(tensor.dtype):
            return stored
        return tensor.dtype

    @property
    def converts(self) -> bool:
        """Whether tensors may change, even if none is loaded into them."""
        return self.dtype is not None or self.device is not None or self.device_map is not None

    def device_of(self, storage: ParameterStorage) -> torch.device:
        """Return the device that a tensor of the model will be on."""
        if self.device_map is not None:
            module, attribute = storage.places[0]
            return self.device_map[id(module), attribute]
        tensor = storage.tensor
        return self.device or (torch.device("cpu") if tensor.is_meta else tensor.device)


def target_of(
    dtype: Any, device: Any, device_map: Mapping[str, Any] | None, *, model: nn.Module, assign: bool
) -> Target:
    """Check and interpret the caller's arguments."""
    if device is not None and device_map is not None:
        raise UnsupportedError("a device map does not go with device=")
    row = None if dtype is None else find_dtype(dtype)
    found = None if row is None else _torch_dtype(row)
    if row is not None and (found is None or not _is_number(found)):
        raise DtypeError(
            "parameters cannot have this dtype", expected="a floating-point dtype of torch", found=row.name
        )
    place = None if device is None else _with_data(device)
    return Target(found, place, None if device_map is None else _places(device_map, model), assign)


def _places(device_map: Mapping[str, Any], model: nn.Module) -> dict[tuple[int, str], torch.device]:
    attributes: dict[str, tuple[int, str]] = {}
    for prefix, module in model.named_modules():
        for attribute, tensor in chain(module._parameters.items(), module._buffers.items()):
            if tensor is not None:
                attributes[f"{prefix}.{attribute}" if prefix else attribute] = (id(module), attribute)
    devices = devices_of(attributes, device_map)
    places = {str(device): device for device in devices.values()}
    found = {key: _with_data(device) for key, device in places.items()}
    return {attributes[name]: found[str(device)] for name, device in devices.items()}


def _with_data(device: Any) -> torch.device:
    place = check_device(device)
    if place.type == "meta":
        raise UnsupportedError("a model cannot be loaded on device meta, which has no data")
    return place


class Step(msgspec.Struct, frozen=True, eq=False):
    """How one tensor of the checkpoint is loaded.

    Attributes:
        storage: The parameter that it goes into.
        lazy: The tensor.
        dtype: The parameter's dtype afterwards.
        device: The parameter's device afterwards.
        is_mapped: Whether the model gets the tensor itself, over the file's own bytes.
        is_in_place: Whether the parameter keeps its memory.
    """

    storage: ParameterStorage
    lazy: LazyTensor
    dtype: torch.dtype
    device: torch.device
    is_mapped: bool
    is_in_place: bool


class Part(msgspec.Struct, frozen=True, eq=False):
    """A parameter whose memory is part of another's, and is filled with it.

    Attributes:
        storage: The part.
        whole: The parameter that covers it.
    """

    storage: ParameterStorage
    whole: ParameterStorage


class Plan(msgspec.Struct, frozen=True, eq=False):
    """Everything that a load will do.

    Attributes:
        match: How names and shapes fit.
        steps: One for each tensor that is loaded.
        parts: Parameters that are views of others.
        rest: Parameters that nothing is loaded into.
        extras: Modules that take a tensor of the checkpoint as their extra state.
    """

    match: Match
    steps: tuple[Step, ...]
    parts: tuple[Part, ...]
    rest: tuple[ParameterStorage, ...]
    extras: tuple[tuple[nn.Module, LazyTensor], ...]

    @property
    def nbytes(self) -> int:
        """Bytes to load, counted as in the checkpoint."""
        return sum(step.lazy.nbytes for step in self.steps) + sum(lazy.nbytes for _, lazy in self.extras)


def make_plan(state: ModelState, tensors: Mapping[str, LazyTensor], noted: Mapping[str, str], target: Target) -> Plan:
    """Decide what goes where."""
    parts = tuple(_parts(state, tensors, noted))
    covered = {name for part in parts for name in part.storage.names}
    wanted = [Wanted(storage.names, _shape(storage.tensor), storage.is_optional) for storage in state.storages]
    wanted += [Wanted((name,), None) for name in state.extras]
    match = match_tensors(wanted, {name: lazy.shape for name, lazy in tensors.items()}, noted, covered)
    sources = dict(zip((*state.storages, *state.extras), match.sources, strict=True))
    wholes = {part.whole for part in parts}
    steps = tuple(
        _step(storage, tensors[source], target, is_whole=storage in wholes)
        for storage in state.storages
        if (source := sources[storage]) is not None
    )
    filled = {step.storage for step in steps} | {part.storage for part in parts}
    extras = tuple(
        (module, tensors[source])
        for name, module in state.extras.items()
        if module is not None and (source := sources[name]) is not None
    )
    return Plan(match, steps, parts, tuple(storage for storage in state.storages if storage not in filled), extras)


def _parts(state: ModelState, tensors: Mapping[str, LazyTensor], noted: Mapping[str, str]) -> Iterator[Part]:
    owners = {name: storage for storage in state.storages for name in storage.names} if noted else {}
    for storage in state.storages if noted else ():
        kept = next((noted[name] for name in storage.names if name in noted), "")
        whole = owners.get(kept) if kept in tensors and not any(name in tensors for name in storage.names) else None
        if whole is not None and whole is not storage and whole.covers(storage):
            yield Part(storage, whole)


def _step(storage: ParameterStorage, lazy: LazyTensor, target: Target, *, is_whole: bool) -> Step:
    tensor = storage.tensor
    stored = find_dtype(lazy.dtype)
    dtype, device = target.dtype_of(tensor, _torch_dtype(stored)), target.device_of(storage)
    _check_dtype(lazy, stored, dtype)
    if tensor.is_meta and not target.assign:
        raise UnsupportedError(
            f"`{storage.names[0]}` of the model has no data (device meta): there is nothing to write into",
            tensor=storage.names[0],
            hint="Give the model the tensors themselves: assign=True",
        )
    is_mapped = target.assign and _is_as_stored(lazy, stored, dtype) and device.type == "cpu" and not is_whole
    is_in_place = not is_mapped and (dtype, device) == (tensor.dtype, tensor.device) and not _overlaps_itself(tensor)
    return Step(storage, lazy, dtype, device, is_mapped, is_in_place)


def _check_dtype(lazy: LazyTensor, stored: DType, dtype: torch.dtype) -> None:
    row = torch_row(dtype)
    if row == stored:
        return
    source = torch.float32 if stored.is_packed else _torch_dtype(stored)
    if source is None or row is None or row.is_packed or not torch.can_cast(source, dtype):
        raise DtypeError(
            f"tensor `{lazy.name}` cannot be converted to the model's dtype",
            tensor=lazy.name,
            expected=f"a dtype that can be cast to {dtype}",
            found=stored.name,
        )


def _is_as_stored(lazy: LazyTensor, stored: DType, dtype: torch.dtype) -> bool:
    return lazy.span is not None and torch_row(dtype) == stored


def _torch_dtype(dtype: DType) -> torch.dtype | None:
    found = getattr(torch, dtype.torch, None) if dtype.torch else None
    return found if isinstance(found, torch.dtype) else None


def _is_number(dtype: torch.dtype) -> bool:
    """Whether torch computes with this dtype as floating-point numbers."""
    row = torch_row(dtype)
    return dtype.is_floating_point and not (row is not None and row.is_packed)


def _shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the shape in elements; torch counts F4 in pairs."""
    row = torch_row(tensor.dtype)
    shape = tuple(tensor.shape)
    return (*shape[:-1], 2 * shape[-1]) if row is not None and row.is_packed and shape else shape


def _overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether elements share memory, as in an expanded tensor, which cannot be written to."""
    return any(extent > 1 and not stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))

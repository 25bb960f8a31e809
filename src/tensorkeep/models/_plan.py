"""Which tensor of a checkpoint goes into which memory of a model, checked before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import torch
from torch import nn

from tensorkeep.arrays.torch.devices import check_device
from tensorkeep.dtypes import DType, find_dtype
from tensorkeep.errors import DtypeError, UnsupportedError
from tensorkeep.models._fill import dtype_row
from tensorkeep.models._match import Match, Wanted, match_tensors
from tensorkeep.models._slots import ModelState, Slot
from tensorkeep.tensors import LazyTensor


class Target(msgspec.Struct, frozen=True):
    """What the model's tensors are to be afterwards.

    Attributes:
        dtype: Of floating-point tensors; None to keep it.
        device: Where they lie; None to keep it.
        assign: Whether the model gets the tensors that are loaded, instead of their numbers.
    """

    dtype: torch.dtype | None
    device: torch.device | None
    assign: bool

    def dtype_of(self, tensor: torch.Tensor, stored: torch.dtype | None = None) -> torch.dtype:
        """Return the dtype that a tensor of the model will have."""
        if _is_number(tensor.dtype) and self.dtype is not None:
            return self.dtype
        if self.assign and stored is not None and _is_number(stored) == _is_number(tensor.dtype):
            return stored
        return tensor.dtype

    def device_of(self, tensor: torch.Tensor) -> torch.device:
        """Return the device that a tensor of the model will be on."""
        return self.device or (torch.device("cpu") if tensor.is_meta else tensor.device)


def target_of(dtype: Any, device: Any, *, assign: bool) -> Target:
    """Make sense of what the caller wants."""
    row = None if dtype is None else find_dtype(dtype)
    found = None if row is None else _torch_dtype(row)
    if row is not None and (found is None or not _is_number(found)):
        raise DtypeError(
            "parameters cannot have this dtype", expected="a floating-point dtype of torch", found=row.name
        )
    place = None if device is None else check_device(device)
    if place is not None and place.type == "meta":
        raise UnsupportedError("a model cannot be loaded on device meta, which has no data")
    return Target(found, place, assign)


class Step(msgspec.Struct, frozen=True, eq=False):
    """One tensor of the checkpoint on its way into the model.

    Attributes:
        slot: The memory that it fills.
        lazy: The tensor.
        dtype: What the slot will have.
        device: Where the slot will be.
        is_mapped: Whether the model gets the tensor itself, as the file is mapped or read.
        is_in_place: Whether the slot's memory stays the same.
    """

    slot: Slot
    lazy: LazyTensor
    dtype: torch.dtype
    device: torch.device
    is_mapped: bool
    is_in_place: bool


class Part(msgspec.Struct, frozen=True, eq=False):
    """Memory that is a part of that of another slot, and is filled with it.

    Attributes:
        slot: The part.
        whole: The slot that covers it.
    """

    slot: Slot
    whole: Slot


class Plan(msgspec.Struct, frozen=True, eq=False):
    """All that is to be done.

    Attributes:
        match: Names and shapes held against each other.
        steps: For each tensor that is loaded.
        parts: Tensors that are views of others.
        rest: Slots that nothing is loaded into.
        extras: Modules that take a tensor of the checkpoint as their extra state.
    """

    match: Match
    steps: tuple[Step, ...]
    parts: tuple[Part, ...]
    rest: tuple[Slot, ...]
    extras: tuple[tuple[nn.Module, LazyTensor], ...]

    @property
    def nbytes(self) -> int:
        """Bytes that are loaded, as the checkpoint has them."""
        return sum(step.lazy.nbytes for step in self.steps) + sum(lazy.nbytes for _, lazy in self.extras)


def make_plan(state: ModelState, tensors: Mapping[str, LazyTensor], noted: Mapping[str, str], target: Target) -> Plan:
    """Decide what goes where."""
    parts = tuple(_parts(state, tensors, noted))
    covered = {name for part in parts for name in part.slot.names}
    wanted = [Wanted(slot.names, _shape(slot.tensor), slot.is_optional) for slot in state.slots]
    wanted += [Wanted((name,), None) for name in state.extras]
    match = match_tensors(wanted, {name: lazy.shape for name, lazy in tensors.items()}, noted, covered)
    sources = dict(zip((*state.slots, *state.extras), match.sources, strict=True))
    wholes = {part.whole for part in parts}
    steps = tuple(
        _step(slot, tensors[source], target, is_whole=slot in wholes)
        for slot in state.slots
        if (source := sources[slot]) is not None
    )
    filled = {step.slot for step in steps} | {part.slot for part in parts}
    extras = tuple(
        (module, tensors[source])
        for name, module in state.extras.items()
        if module is not None and (source := sources[name]) is not None
    )
    return Plan(match, steps, parts, tuple(slot for slot in state.slots if slot not in filled), extras)


def _parts(state: ModelState, tensors: Mapping[str, LazyTensor], noted: Mapping[str, str]) -> Iterator[Part]:
    owners = {name: slot for slot in state.slots for name in slot.names} if noted else {}
    for slot in state.slots if noted else ():
        kept = next((noted[name] for name in slot.names if name in noted), "")
        whole = owners.get(kept) if kept in tensors and not any(name in tensors for name in slot.names) else None
        if whole is not None and whole is not slot and whole.covers(slot):
            yield Part(slot, whole)


def _step(slot: Slot, lazy: LazyTensor, target: Target, *, is_whole: bool) -> Step:
    tensor = slot.tensor
    stored = _known_dtype(lazy)
    dtype, device = target.dtype_of(tensor, _torch_dtype(stored)), target.device_of(tensor)
    _check_dtype(lazy, stored, dtype)
    if tensor.is_meta and not target.assign:
        raise UnsupportedError(
            f"`{slot.names[0]}` of the model has no data (device meta): there is nothing to write into",
            tensor=slot.names[0],
            hint="Give the model the tensors themselves: assign=True",
        )
    is_mapped = target.assign and _is_as_stored(lazy, stored, dtype) and device.type == "cpu" and not is_whole
    is_in_place = not is_mapped and (dtype, device) == (tensor.dtype, tensor.device) and not _overlaps_itself(tensor)
    return Step(slot, lazy, dtype, device, is_mapped, is_in_place)


def _known_dtype(lazy: LazyTensor) -> DType:
    """Return the dtype, which this version must know to load the tensor."""
    return find_dtype(lazy.dtype)


def _check_dtype(lazy: LazyTensor, stored: DType, dtype: torch.dtype) -> None:
    row = dtype_row(dtype)
    if row == stored:
        return
    source = torch.float32 if stored.is_packed else _torch_dtype(stored)
    if source is None or row is None or row.is_packed or not torch.can_cast(source, dtype):
        raise DtypeError(
            f"tensor `{lazy.name}` cannot be converted to the model's dtype without losing what it is",
            tensor=lazy.name,
            expected=f"what becomes {dtype}",
            found=stored.name,
        )


def _is_as_stored(lazy: LazyTensor, stored: DType, dtype: torch.dtype) -> bool:
    return lazy.span is not None and dtype_row(dtype) == stored


def _torch_dtype(dtype: DType) -> torch.dtype | None:
    found = getattr(torch, dtype.torch, None) if dtype.torch else None
    return found if isinstance(found, torch.dtype) else None


def _is_number(dtype: torch.dtype) -> bool:
    """Whether torch computes with it as with real numbers."""
    row = dtype_row(dtype)
    return dtype.is_floating_point and not (row is not None and row.is_packed)


def _shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the extents in elements; torch counts pairs of F4."""
    row = dtype_row(tensor.dtype)
    shape = tuple(tensor.shape)
    return (*shape[:-1], 2 * shape[-1]) if row is not None and row.is_packed and shape else shape


def _overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether several elements lie at one place, as in an expanded tensor, which cannot be written to."""
    return any(extent > 1 and not stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))

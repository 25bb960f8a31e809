"""What one rank has to say before anything is written: values that are no tensors, and which tensors are one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import torch
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.tensor import DTensor

from tensorkeep.checkpoint import load
from tensorkeep.dtypes import torch_row
from tensorkeep.errors import StateError, UnsupportedError
from tensorkeep.models import memory_key
from tensorkeep.tensors import file_body, prepare


class Survey(msgspec.Struct, frozen=True):
    """What one rank tells the first.

    Attributes:
        objects: A file of the values that are no plain tensors, by name; empty where the rank has none to save.
        ties: Groups of names that are one tensor here.
    """

    objects: bytes
    ties: tuple[tuple[str, ...], ...]


def tensor_data_of(item: WriteItem) -> TensorWriteData:
    """Return what a plan says of a part of a tensor."""
    if item.tensor_data is None:
        raise UnsupportedError(f"the plan does not say what part of tensor `{item.index.fqn}` there is")
    return item.tensor_data


def is_object(item: WriteItem) -> bool:
    """Say whether an item is saved as a value of the tree, and not as a tensor of its own.

    A tensor that one rank has whole may be sparse, or of a dtype that the format does not have: the tree says it.
    """
    if item.tensor_data is None:
        return True
    properties = item.tensor_data.properties
    is_plain = properties.layout == torch.strided and torch_row(properties.dtype) is not None
    return item.type == WriteItemType.TENSOR and not is_plain


def survey(plan: SavePlan, planner: SavePlanner) -> Survey:
    """Look at what a rank has."""
    values = {item.index.fqn: _value(item, planner) for item in plan.items if is_object(item)}
    return Survey(_file_of(values), _ties(planner))


def objects_of(survey: Survey) -> dict[str, Any]:
    """Return the values that are no plain tensors, by name."""
    values: dict[str, Any] = load(survey.objects) if survey.objects else {}
    return values


def _value(item: WriteItem, planner: SavePlanner) -> Any:
    """Return a value as it is; `resolve_data` would pickle it."""
    look_up = getattr(planner, "lookup_object", None)
    if look_up is None:
        raise UnsupportedError(
            f"{item.index.fqn!r} is no tensor, and the planner gives such values as pickles only",
            expected="a planner with lookup_object, such as DefaultSavePlanner",
            found=type(planner).__name__,
        )
    value = look_up(item.index)
    _refuse_shards_within(value, item.index.fqn)
    return value


def _refuse_shards_within(value: Any, path: str) -> None:
    """Refuse a part of a tensor where DCP takes the whole value for that of one rank."""
    if isinstance(value, DTensor):
        raise StateError(
            f"{path!r} is a DTensor inside of a value that one rank saves alone",
            hint="Put it into a dict or a list: tuples and objects are saved by one rank",
        )
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _refuse_shards_within(inner, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            _refuse_shards_within(inner, f"{path}.{place}")


def _file_of(values: dict[str, Any]) -> bytes:
    if not values:
        return b""
    prepared = prepare(values)
    return b"".join(file_body(prepared.to_write, state=prepared.state).pieces())


def _ties(planner: SavePlanner) -> tuple[tuple[str, ...], ...]:
    """Group the names of tensors that are one: the same elements of tensors of the same shape, in the same memory."""
    groups: dict[Any, list[str]] = {}
    for name, value in _state_dict(planner):
        if isinstance(value, torch.Tensor):
            local = value.to_local() if isinstance(value, DTensor) else value
            if _has_address(local):
                groups.setdefault((memory_key(local), _spread(value)), []).append(name)
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)


def _state_dict(planner: SavePlanner) -> Iterable[tuple[str, Any]]:
    """Return all tensors of this rank, those included that another one saves; nothing where a planner hides them."""
    state_dict = getattr(planner, "state_dict", None)
    return state_dict.items() if isinstance(state_dict, Mapping) else ()


def _has_address(tensor: torch.Tensor) -> bool:
    is_dense = tensor.layout == torch.strided and not hasattr(tensor, "__tensor_flatten__")
    return is_dense and tensor.numel() > 0 and not tensor.is_meta and tensor.data_ptr() != 0


def _spread(tensor: torch.Tensor) -> tuple[object, ...]:
    """Return what is equal for tensors that are spread over ranks alike."""
    if isinstance(tensor, DTensor):
        return tuple(tensor.shape), tensor.device_mesh, tensor.placements
    return (tuple(tensor.shape),)

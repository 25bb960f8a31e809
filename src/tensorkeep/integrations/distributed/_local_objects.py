"""What one rank has besides plain tensors: values of the tree, and names that are one tensor."""

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


class LocalObjects(msgspec.Struct, frozen=True):
    """What one rank sends to the first.

    Attributes:
        objects: A safetensors file of the values that are not plain tensors, by name; empty if there are none.
        ties: Groups of names that are one tensor on this rank.
    """

    objects: bytes
    ties: tuple[tuple[str, ...], ...]


def tensor_data_of(item: WriteItem) -> TensorWriteData:
    """Return the part of a tensor that a plan describes."""
    if item.tensor_data is None:
        raise UnsupportedError(f"the plan does not say which part of tensor `{item.index.fqn}` is saved")
    return item.tensor_data


def is_object(item: WriteItem) -> bool:
    """Say whether an item is saved as a value of the tree, and not as a tensor of its own.

    A tensor that one rank has whole may be sparse, or of a dtype that the format lacks; the tree can hold it.
    """
    if item.tensor_data is None:
        return True
    properties = item.tensor_data.properties
    is_plain = properties.layout == torch.strided and torch_row(properties.dtype) is not None
    return item.type == WriteItemType.TENSOR and not is_plain


def local_objects(plan: SavePlan, planner: SavePlanner) -> LocalObjects:
    """Collect what this rank has besides plain tensors."""
    values = {item.index.fqn: _value(item, planner) for item in plan.items if is_object(item)}
    return LocalObjects(_file_of(values), _ties(planner))


def objects_in(local: LocalObjects) -> dict[str, Any]:
    """Return the values that are not plain tensors, by name."""
    values: dict[str, Any] = load(local.objects) if local.objects else {}
    return values


def _value(item: WriteItem, planner: SavePlanner) -> Any:
    """Return a value without pickling it, as `resolve_data` would."""
    look_up = getattr(planner, "lookup_object", None)
    if look_up is None:
        raise UnsupportedError(
            f"{item.index.fqn!r} is not a tensor, and the planner gives such values only as pickles",
            expected="a planner with lookup_object, such as DefaultSavePlanner",
            found=type(planner).__name__,
        )
    value = look_up(item.index)
    _refuse_shards_within(value, item.index.fqn)
    return value


def _refuse_shards_within(value: Any, path: str) -> None:
    """Refuse a part of a tensor inside a value that DCP takes from one rank alone."""
    if isinstance(value, DTensor):
        raise StateError(
            f"{path!r} is a DTensor inside a value that one rank saves alone",
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
    """Group names of one tensor: the same elements of tensors of the same shape, in the same memory."""
    groups: dict[Any, list[str]] = {}
    for name, value in _state_dict(planner):
        if isinstance(value, torch.Tensor):
            local = value.to_local() if isinstance(value, DTensor) else value
            if _has_address(local):
                groups.setdefault((memory_key(local), _sharding(value)), []).append(name)
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)


def _state_dict(planner: SavePlanner) -> Iterable[tuple[str, Any]]:
    """Return all tensors of this rank, including ones that another rank saves; none if the planner hides them."""
    state_dict = getattr(planner, "state_dict", None)
    return state_dict.items() if isinstance(state_dict, Mapping) else ()


def _has_address(tensor: torch.Tensor) -> bool:
    is_dense = tensor.layout == torch.strided and not hasattr(tensor, "__tensor_flatten__")
    return is_dense and tensor.numel() > 0 and not tensor.is_meta and tensor.data_ptr() != 0


def _sharding(tensor: torch.Tensor) -> tuple[object, ...]:
    """Return a key that is equal for tensors that are sharded over ranks in the same way."""
    if isinstance(tensor, DTensor):
        return tuple(tensor.shape), tensor.device_mesh, tensor.placements
    return (tuple(tensor.shape),)

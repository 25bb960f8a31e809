"""The plans of all ranks as one, and the state that they save together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch.distributed.checkpoint.planner import SavePlan, WriteItem

from tensorkeep.checkpoint import PlannedTensor, RankedTensors
from tensorkeep.dtypes import torch_row
from tensorkeep.errors import DtypeError, UnsupportedError
from tensorkeep.integrations.distributed._local_objects import is_object, tensor_data_of
from tensorkeep.tensors import PlaceholderTensor, Region, cover_fault

_Path: TypeAlias = tuple[str | int, ...]


class GlobalPlan(RankedTensors, frozen=True):
    """The plans of all ranks.

    Attributes:
        paths: Name of every value to the keys that lead to it, in the order of the state dict.
    """

    paths: dict[str, _Path]


def region_of(item: WriteItem) -> Region:
    """Return which part of its tensor an item is."""
    chunk = tensor_data_of(item).chunk
    starts, sizes = tuple(chunk.offsets), tuple(chunk.sizes)
    return Region(starts, tuple(start + size for start, size in zip(starts, sizes, strict=True)))


def merge_plans(plans: Sequence[SavePlan]) -> GlobalPlan:
    """Merge the plans of all ranks, and check that they cover each tensor exactly once."""
    if not all(plan.usable for plan in plans):
        raise UnsupportedError(
            "the planner keeps plans of an earlier save, with places in its files",
            hint="Make the planner without enable_plan_caching",
        )
    tensors: dict[str, PlannedTensor] = {}
    names: dict[str, None] = {}
    for rank, plan in enumerate(plans):
        for place, item in enumerate(plan.items):
            names[item.index.fqn] = None
            if not is_object(item):
                _add(tensors, rank, place, item)
    for name, tensor in tensors.items():
        _check_covered(name, tensor)
    paths: dict[str, _Path] = {}
    for plan in plans:
        paths |= {name: path for name, path in (plan.planner_data or {}).items() if name in names}
    return GlobalPlan(tensors, len(plans), {**paths, **{name: (name,) for name in names if name not in paths}})


def _add(tensors: dict[str, PlannedTensor], rank: int, place: int, item: WriteItem) -> None:
    data, name = tensor_data_of(item), item.index.fqn
    dtype = torch_row(data.properties.dtype)
    if dtype is None:
        raise DtypeError(
            f"tensor `{name}` has a dtype that the format cannot hold", tensor=name, found=str(data.properties.dtype)
        )
    if data.properties.layout != torch.strided:
        raise UnsupportedError(f"tensor `{name}` is not dense", tensor=name, found=str(data.properties.layout))
    tensor = tensors.setdefault(name, PlannedTensor(dtype, tuple(data.size), []))
    if (tensor.dtype, tensor.shape) != (dtype, tuple(data.size)):
        raise UnsupportedError(
            f"ranks have different tensors under the name `{name}`",
            tensor=name,
            expected=f"{tensor.dtype.name} {list(tensor.shape)}",
            found=f"{dtype.name} {list(data.size)} on rank {rank}",
        )
    region = region_of(item)
    if region.n_elements:
        tensor.parts.append((rank, place, region))


def _check_covered(name: str, tensor: PlannedTensor) -> None:
    fault = cover_fault(tensor.shape, (region for _, _, region in tensor.parts))
    if fault is None:
        return
    what = {"missing": "no rank has", "overlap": "two ranks have", "outside": "there is no"}[fault.kind]
    raise UnsupportedError(
        f"the parts of tensor `{name}` do not cover it exactly once",
        tensor=name,
        expected=f"each element of shape {list(tensor.shape)} on one rank",
        found=f"{what} {fault.region}",
    )


def tree_of(
    gathered: GlobalPlan, objects: Mapping[str, Any], ties: Sequence[Iterable[Sequence[str]]]
) -> tuple[Any, dict[str, PlaceholderTensor]]:
    """Return the state to save, with placeholders for tensors, and the placeholders by name."""
    memory = _memory_of(gathered, ties)
    leaves = {
        name: PlaceholderTensor(tensor.dtype, tensor.stored_shape, "torch", memory.get(name))
        for name, tensor in gathered.tensors.items()
    }
    tree: dict[str | int, Any] = {}
    for name, path in gathered.paths.items():
        _insert(tree, path, leaves[name] if name in leaves else objects[name])
    return tree, leaves


def _memory_of(gathered: GlobalPlan, ties: Sequence[Iterable[Sequence[str]]]) -> dict[str, int]:
    """Number the groups of names that are one tensor on every rank that has elements of them."""
    group_of = [{name: frozenset(group) for group in groups for name in group} for groups in ties]
    memory: dict[str, int] = {}
    n_groups = 0
    for group in dict.fromkeys(group for groups in group_of for group in groups.values()):
        names = [name for name in group if name in gathered.tensors and name not in memory]
        ranks = {rank for name in names for rank, _, _ in gathered.tensors[name].parts}
        alike = {(gathered.tensors[name].dtype.name, gathered.tensors[name].shape) for name in names}
        if (
            len(names) > 1
            and len(alike) == 1
            and all(group_of[rank].get(names[0], frozenset()) >= group for rank in ranks)
        ):
            n_groups += 1
            memory |= dict.fromkeys(names, n_groups)
    return memory


def _insert(tree: dict[str | int, Any], path: _Path, value: Any) -> None:
    """Insert a value at its path: text is the key of a dict, a number is an index of a list."""
    into: Any = tree
    for key, following in pairwise(path):
        into = _entry(into, key, {} if isinstance(following, str) else [])
        if type(into) is not (dict if isinstance(following, str) else list):
            raise _contradiction(path)
    if isinstance(into, list):
        _entry(into, path[-1], None)
        is_free = into[int(path[-1])] is None
    else:
        is_free = path[-1] not in into
    if not is_free:
        raise _contradiction(path)
    into[path[-1]] = value


def _entry(into: Any, key: str | int, empty: Any) -> Any:
    if isinstance(into, dict):
        return into.setdefault(key, empty)
    into.extend(None for _ in range(len(into), int(key) + 1))
    if into[key] is None:
        into[key] = empty
    return into[key]


def _contradiction(path: _Path) -> UnsupportedError:
    name = ".".join(map(str, path))
    return UnsupportedError(
        "ranks have different values at one place of the state dict",
        tensor=name,
        expected="a value, a dict or a list, and the same one on all ranks",
        found=f"`{name}`, and another value there",
    )

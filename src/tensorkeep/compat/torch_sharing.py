"""Which tensors of a state dict share memory, and which of their names to keep, for `tensorkeep.torch`.

The reference compares each tensor only with the one before it, so that a small view hides a later overlap, and it
refuses a tensor that covers its group but not its whole storage. Both are correct here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from tensorkeep.arrays import Extent
from tensorkeep.tensors import overlapping


def storage_ptr(tensor: torch.Tensor) -> int:
    """Return the address of a tensor's storage; 0 for a tensor without one."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):  # sparse tensors and wrappers have no storage
        return 0


def storage_size(tensor: torch.Tensor) -> int:
    """Return the size of a tensor's storage in bytes."""
    try:
        return tensor.untyped_storage().nbytes()
    except (NotImplementedError, RuntimeError):
        return tensor.nelement() * tensor.element_size()


def end_ptr(tensor: torch.Tensor) -> int:
    """Return the address one past a tensor's last byte."""
    start = tensor.data_ptr()
    if not tensor.nelement():
        return start
    reach = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start + (reach + 1) * tensor.element_size()


def _extent(tensor: torch.Tensor, key: str) -> Extent:
    return Extent(key, tensor.data_ptr(), end_ptr(tensor))


def filter_shared_not_shared(tensors: Iterable[set[str]], state_dict: Mapping[str, torch.Tensor]) -> list[set[str]]:
    """Split groups that share a storage into groups that share bytes."""
    filtered: list[set[str]] = []
    for names in tensors:
        if len(names) == 1:
            filtered.append(names)
            continue
        together = overlapping({name: _extent(state_dict[name], "") for name in names})
        filtered.extend(set(group) for group in together)
        alone = names.difference(*together)
        filtered.extend({name} for name in sorted(alone))
    return filtered


def find_shared_tensors(state_dict: Mapping[str, torch.Tensor]) -> list[set[str]]:
    """Group the names whose tensors share bytes."""
    by_storage: dict[tuple[torch.device, int, int], set[str]] = {}
    for name, tensor in state_dict.items():
        if tensor.device.type == "meta" or tensor.layout != torch.strided:
            continue
        try:
            storage = tensor.untyped_storage()
            address, size = storage.data_ptr(), storage.nbytes()
        except (NotImplementedError, RuntimeError):  # a wrapper of other tensors
            continue
        if address and size:
            by_storage.setdefault((tensor.device, address, size), set()).add(name)
    return filter_shared_not_shared(by_storage.values(), state_dict)


def is_complete(tensor: torch.Tensor) -> bool:
    """Say whether a tensor covers its whole storage."""
    nbytes = tensor.nelement() * tensor.element_size()
    return tensor.data_ptr() == storage_ptr(tensor) and nbytes == storage_size(tensor)


def _covers(tensor: torch.Tensor, group: Iterable[torch.Tensor]) -> bool:
    """Say whether every byte that the group uses is one of the tensor's elements."""
    members = list(group)
    start = min(member.data_ptr() for member in members)
    stop = max(end_ptr(member) for member in members)
    return tensor.data_ptr() == start and end_ptr(tensor) == stop and _has_no_gaps(tensor)


def _has_no_gaps(tensor: torch.Tensor) -> bool:
    """Say whether the elements are contiguous in some order of dimensions."""
    expected = 1
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return True


def remove_duplicate_names(
    state_dict: Mapping[str, torch.Tensor],
    *,
    preferred_names: Iterable[str] | None = None,
    discard_names: Iterable[str] | None = None,
) -> dict[str, list[str]]:
    """Choose the name to keep among names that share bytes; return it with the names to remove."""
    preferred = set(preferred_names or ())
    discarded = set(discard_names or ())
    to_remove: dict[str, list[str]] = {}
    for shared in find_shared_tensors(state_dict):
        if len(shared) < 2:
            continue
        members = [state_dict[name] for name in shared]
        complete = {name for name in shared if _covers(state_dict[name], members)}
        if not complete:
            raise RuntimeError(
                "Error while trying to find names to remove to save state dict, but found no suitable name to keep"
                f" for saving amongst: {shared}. None is covering the entire storage.Refusing to save/load the model"
                " since you could be storing much more memory than needed. Please refer to"
                " https://huggingface.co/docs/safetensors/torch_shared_tensors for more information. Or open an"
                " issue."
            )
        kept = min(preferred & complete or complete - discarded or complete)
        to_remove[kept] = sorted(shared - {kept})
    return to_remove

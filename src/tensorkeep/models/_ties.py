"""Tied weights: one tensor that a model has under several names.

A checkpoint may hold a tensor under each of these names. If they differ, all but one would be lost on loading.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import torch

from tensorkeep.arrays import pieces
from tensorkeep.checkpoint import have_equal_bytes
from tensorkeep.errors import StateDictMismatchError
from tensorkeep.tensors import LazyTensor

_Tensor = TypeVar("_Tensor")

_PIECE_NBYTES: Final = 2**24
"""Bytes compared at once: some tensors must be copied for that."""


class TieConflict(NamedTuple):
    """A saved tensor that loading would discard: the model ties its name to another tensor with different values.

    Attributes:
        name: The tensor's name.
        kept: The name of the tensor that is loaded instead.
    """

    name: str
    kept: str


def memory_key(tensor: torch.Tensor) -> Hashable:
    """Return a key that is equal for tensors that share memory element for element."""
    address = 0 if tensor.is_meta else tensor.data_ptr()
    if not address:  # no data, or no elements
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


def tie_conflicts(
    tied: Iterable[tuple[Sequence[str], str | None]],
    tensors: Mapping[str, _Tensor],
    are_equal: Callable[[_Tensor, _Tensor], bool],
) -> Iterator[TieConflict]:
    """Find saved tensors that differ from the one loaded in their place, by groups of tied names and the kept one."""
    for names, kept in tied:
        if kept is not None:
            others = [name for name in names if name != kept and name in tensors]
            yield from (TieConflict(name, kept) for name in others if not are_equal(tensors[name], tensors[kept]))


def tie_error(
    conflicts: Sequence[TieConflict], model: object, path: str | None = None, *, part: str = "the checkpoint"
) -> StateDictMismatchError:
    """Return the error about tied tensors that differ; nothing may have been loaded yet."""
    name, kept = conflicts[0]
    more = f" (and {len(conflicts) - 1:,} more like these)" if conflicts[1:] else ""
    return StateDictMismatchError(
        f"{part} does not fit {type(model).__name__}, which ties `{name:.200}` to `{kept:.200}`{more}",
        path=path,
        expected="equal tensors, or one of them",
        found="two that differ",
        hint=f"Nothing was changed. Untie them in the model, leave one of them out, or load `{kept:.200}`"
        " with strict=False",
        unexpected=[conflict.name for conflict in conflicts],
    )


def equal_stored(a: LazyTensor, b: LazyTensor) -> bool:
    """Say whether two saved tensors are bitwise equal; they are read only if digests do not tell."""
    if (a.dtype, a.shape, a.nbytes) != (b.dtype, b.shape, b.nbytes):
        return False
    if a is b or (a.span is not None and a.source is b.source and a.span == b.span):
        return True
    if a.digest is not None and b.digest is not None:
        return a.digest == b.digest
    return have_equal_bytes(a, b, lambda _: None)


def equal_loaded(a: Any, b: Any) -> bool:
    """Say whether two dense torch tensors are bitwise equal, so that NaN equals itself and 0 differs from -0."""
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    if memory_key(a) == memory_key(b):
        return True
    if a.device != b.device:
        a, b = a.cpu(), b.cpu()
    places = pieces(tuple(a.shape), a.element_size(), _PIECE_NBYTES)
    return all(torch.equal(_bits(a[place]), _bits(b[place])) for place in places)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    resolved = tensor.detach().resolve_conj().resolve_neg()
    return resolved.contiguous().reshape(-1).view(torch.uint8)

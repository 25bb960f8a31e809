"""Tensors of pickles that are views of one storage: those that are one and the same, and those that overlap."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable
from math import prod

import msgspec

from tensorkeep.arrays import Extent
from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.formats.pickles import TensorRecord
from tensorkeep.kinds.pickles import PickleFile
from tensorkeep.kinds.safetensors import SavedTensors
from tensorkeep.tensors import overlapping


class StoredView(msgspec.Struct, frozen=True):
    """Where a tensor lies.

    Attributes:
        identity: Equal for tensors that are the same view of the same storage.
        extent: The part of the storage that it reaches over, in bytes; None where nobody asks for it.
    """

    identity: Hashable
    extent: Extent | None = None


class Ties(msgspec.Struct, frozen=True):
    """What tensors have to do with each other.

    Attributes:
        aliases: Name to the name of the tensor that it is the same as.
        overlapped: Groups of names whose tensors overlap and are not the same.
    """

    aliases: dict[str, str]
    overlapped: tuple[tuple[str, ...], ...]


def views_in(file: PickleFile) -> dict[str, StoredView]:
    """Return where each tensor of a file lies; arrays, whose elements stand in the pickle, overlap no other."""
    views = {name: _view(file, tensor) for name, tensor in file.tensors.items() if prod(tensor.shape)}
    arrays = {name: StoredView(id(record)) for name, record in file.records.items() if name not in file.tensors}
    return views | arrays


def views_of_aliases(file: SavedTensors) -> dict[str, StoredView]:
    """Return where tensors of safetensors files lie that are the same as others."""
    ties = {name: alias.of for name, alias in file.aliases.items() if alias.is_whole}
    return {name: StoredView((file.path, of)) for name, of in (ties | {of: of for of in ties.values()}).items()}


def _view(file: PickleFile, tensor: TensorRecord) -> StoredView:
    dtype = ALL_BY_NAME[tensor.dtype]
    steps = [(extent, stride) for extent, stride in zip(tensor.shape, tensor.strides, strict=True) if extent > 1]
    first = dtype.nbytes(tensor.offset)
    last = first + dtype.nbytes(1 + sum((extent - 1) * stride for extent, stride in steps))
    key = tensor.storage.key if tensor.storage else ""
    span = file.document.spans.get(key)  # several archives in one file may have storages of one key
    storage = f"{file.path}:{key}:{id(file) if span is None else span.start}"
    changes = (tensor.is_conj, tensor.is_neg)
    return StoredView((storage, dtype.name, first, tensor.shape, *steps, changes), Extent(storage, first, last))


def ties_of(places: Iterable[tuple[str, StoredView | None]], taken: Container[str]) -> Ties:
    """Find tensors to store only once, and overlapping ones that must be stored separately."""
    aliases: dict[str, str] = {}
    firsts: dict[Hashable, str] = {}
    extents: dict[str, Extent | None] = {}
    for name, view in places:
        if view is None:
            continue
        first = firsts.setdefault(view.identity, name)
        if first == name or name in taken:
            extents[name] = view.extent
        else:
            aliases[name] = first
    return Ties(aliases, tuple(tuple(group) for group in overlapping(extents)))

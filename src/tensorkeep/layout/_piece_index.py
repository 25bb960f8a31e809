"""The index of a checkpoint that several processes wrote, each its own pieces of tensors. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import msgspec

from tensorkeep.dtypes import BY_NAME
from tensorkeep.errors import DtypeError, IntegrityError
from tensorkeep.layout._index import Index, ShardRecord
from tensorkeep.layout._pieces import Piece
from tensorkeep.tensors import Region, cover_fault


class PiecedTensor(msgspec.Struct, frozen=True):
    """A tensor, and which file holds which part of it.

    Attributes:
        dtype: Name of the element type in the format.
        shape: Elements along each dimension.
        files: Part to the file that stores it under its `piece_name`. Empty parts are not stored, except for one
            part of an empty tensor.
    """

    dtype: str
    shape: tuple[int, ...]
    files: Mapping[Region, str]


def piece_name(tensor: str, region: Region, shape: tuple[int, ...]) -> str:
    """Return the name under which a file stores a part of a tensor."""
    return Piece.of(tensor, region, shape).name


def index_of_pieces(
    tensors: Mapping[str, PiecedTensor],
    records: Mapping[str, ShardRecord],
    *,
    metadata: Mapping[str, Any] | None = None,
    state: str | None = None,
) -> Index:
    """Return the index of files that store pieces of tensors, each element once."""
    weight_map: dict[str, str] = {}
    splits: dict[str, tuple[str, ...]] = {}
    nbytes = 0
    for name, tensor in tensors.items():
        nbytes += _nbytes(name, tensor)
        _refuse_gaps(name, tensor)
        files = {piece_name(name, region, tensor.shape): tensor.files[region] for region in sorted(tensor.files)}
        if name not in files:
            splits[name] = tuple(files)
        twice = weight_map.keys() & files.keys()
        if twice:
            raise IntegrityError("a piece has the name of another tensor or piece", tensor=name, found=min(twice))
        weight_map |= files
    totals = {
        "total_parameters": sum(prod(tensor.shape) for tensor in tensors.values()),
        "total_size": nbytes,
    }
    return Index(weight_map, {**(metadata or {}), **totals}, dict(records), splits, state)


def _nbytes(name: str, tensor: PiecedTensor) -> int:
    dtype = BY_NAME.get(tensor.dtype)
    if dtype is None:
        raise DtypeError(
            f"tensor `{name}` has a dtype that safetensors does not have", tensor=name, found=tensor.dtype
        )
    return dtype.nbytes(prod(tensor.shape))


def _refuse_gaps(name: str, tensor: PiecedTensor) -> None:
    fault = cover_fault(tensor.shape, tensor.files)
    if fault is None and tensor.files:
        return
    raise IntegrityError(
        f"the files do not store each part of tensor `{name}` exactly once",
        tensor=name,
        found=f"{fault.region} {fault.kind}" if fault else "no file",
    )

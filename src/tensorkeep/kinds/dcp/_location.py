"""Recognise a checkpoint of torch.distributed.checkpoint at a path."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from tensorkeep.transport import exists, is_directory, list_names, split

_METADATA: Final = ".metadata"
_is_of_a_rank = re.compile(r"__[0-9]{1,9}\.metadata").fullmatch
_is_shard = re.compile(r"shard-[0-9]{5,9}-model-[0-9]{5,9}-of-[0-9]{5,9}\.safetensors").fullmatch


class DistributedLocation(msgspec.Struct, frozen=True):
    """A checkpoint's metadata files or, if it has none, its safetensors files.

    Attributes:
        directory: Their directory.
        metadata: Names of `.metadata` files: one, or one per rank if the ranks saved without communicating.
        shards: Names of safetensors files, each with the pieces of one rank.
    """

    directory: str
    metadata: tuple[str, ...] = ()
    shards: tuple[str, ...] = ()


def find_distributed(path: str) -> DistributedLocation | None:
    """Find a checkpoint of torch.distributed.checkpoint; None if the path is something else."""
    directory, name = split(path)
    if name == _METADATA and exists(path):
        return DistributedLocation(directory, (name,))
    if not is_directory(path):
        return None
    names = list_names(path) or []
    files = [name for name in names if name.endswith((".safetensors", ".safetensors.index.json"))]
    if files:
        are_shards = all(map(_is_shard, files))
        return DistributedLocation(path, shards=tuple(files)) if are_shards else None
    metadata = (_METADATA,) if _METADATA in names else tuple(filter(_is_of_a_rank, names))
    return DistributedLocation(path, metadata) if metadata else None

"""Whether a path is a checkpoint that many ranks wrote with torch.distributed.checkpoint."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from tensorkeep.transport import exists, is_directory, is_remote, join, list_names, split

_METADATA: Final = ".metadata"
_USUAL: Final = ("model.safetensors.index.json", "model.safetensors")
_is_of_a_rank = re.compile(r"__[0-9]{1,9}\.metadata").fullmatch
_is_shard = re.compile(r"shard-[0-9]{5,9}-model-[0-9]{5,9}-of-[0-9]{5,9}\.safetensors").fullmatch


class DistributedLocation(msgspec.Struct, frozen=True):
    """The files of one checkpoint that say where all else is; one of the two is empty.

    Attributes:
        directory: Where they are.
        metadata: Names of `.metadata` files: one, or one of each rank where ranks did not speak with each other.
        shards: Names of safetensors files, each with pieces of one rank.
    """

    directory: str
    metadata: tuple[str, ...] = ()
    shards: tuple[str, ...] = ()


def find_distributed(path: str) -> DistributedLocation | None:
    """Find the checkpoint that ranks left in a directory."""
    directory, name = split(path)
    if name == _METADATA and exists(path):
        return DistributedLocation(directory, (name,))
    if not is_directory(path):
        return None
    if is_remote(path) and any(exists(join(path, name)) for name in _USUAL):  # to list it would be one request more
        return None
    names = list_names(path) or []
    files = [name for name in names if name.endswith((".safetensors", ".safetensors.index.json"))]
    if files:
        are_shards = all(map(_is_shard, files))
        return DistributedLocation(path, shards=tuple(files)) if are_shards else None
    metadata = (_METADATA,) if _METADATA in names else tuple(filter(_is_of_a_rank, names))
    return DistributedLocation(path, metadata) if metadata else None

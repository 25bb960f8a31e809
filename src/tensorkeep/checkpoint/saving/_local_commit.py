"""The step from the files of an old checkpoint to those of a new one, when all of these are written."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import Final

from tensorkeep.errors import FormatError, IntegrityError, RefusedError, SourceMissingError, as_transport_error
from tensorkeep.kinds.safetensors import read_index
from tensorkeep.layout import stem_of_index
from tensorkeep.transport import Transaction

_SAFETENSORS: Final = (".safetensors",)


def commit_to(
    shards: Collection[str],
    index_file: str | None,
    staging: Transaction,
    directory: str,
    entries: Collection[str],
    *,
    is_index: Callable[[str], object] = stem_of_index,
    suffixes: tuple[str, ...] = _SAFETENSORS,
) -> None:
    """Commit the new files, and remove what only the old checkpoint had."""
    standing = {name for name in entries if _exists(directory, name)}
    overwrites = index_file is not None and any(_exists(directory, name) for name in shards)
    staging.commit(
        first=sorted(standing - set(shards)) if overwrites else (),
        last=index_file or next(iter(shards)),
        remove=sorted(standing | _listed(directory, standing, is_index, suffixes)),
    )


def _exists(directory: str, name: str) -> bool:
    try:
        with as_transport_error("could not read the directory", directory):
            os.lstat(os.path.join(directory, name))
    except SourceMissingError:
        return False
    return True


def _listed(
    directory: str, standing: set[str], is_index: Callable[[str], object], suffixes: tuple[str, ...]
) -> set[str]:
    """Return the shards that the old indexes list, without those of any other index in the directory."""
    with as_transport_error("could not read the directory", directory):
        indexes = {name for name in os.listdir(directory) if is_index(name)}
    old = set().union(*(_shards_of(directory, name, suffixes) for name in indexes & standing))
    return old - set().union(*(_shards_of(directory, name, suffixes) for name in indexes - standing))


def _shards_of(directory: str, index: str, suffixes: tuple[str, ...]) -> set[str]:
    try:
        files = read_index(os.path.join(directory, index), check=False).weight_map.values()
    except (FormatError, RefusedError, IntegrityError, SourceMissingError):  # what is no index owns nothing
        return set()
    return {name for name in files if name.endswith(suffixes) and os.path.basename(name) == name}

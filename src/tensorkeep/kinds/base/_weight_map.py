"""Whether an index and its shards say the same, for indexes that other programs write."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from tensorkeep.errors import IntegrityError, SourceMissingError
from tensorkeep.texts import listed
from tensorkeep.transport import exists, join

_SHOWN: Final = 10


def refuse_missing_shards(path: str, directory: str, names: Iterable[str]) -> None:
    """Refuse an index that names files which do not exist."""
    missing = [name for name in names if not exists(join(directory, name))]
    if missing:
        raise SourceMissingError(
            "a shard is missing" if len(missing) == 1 else f"{len(missing):,} shards are missing",
            path=path,
            expected=listed(missing, _SHOWN),
            hint="Get it again, or save the checkpoint again",
        )


def refuse_disagreement(path: str, files: Mapping[str, Collection[str]], weight_map: Mapping[str, str]) -> None:
    """Check that each tensor is in the file that the index says, and in no other; `files` has the names in each."""
    owners: dict[str, list[str]] = {}
    for file, tensors in files.items():
        for name in tensors:
            owners.setdefault(name, []).append(file)
    faults = [
        *(f"`{name}` is in no shard" for name in weight_map if name not in owners),
        *(f"`{name}` is in {' and '.join(found)}" for name, found in owners.items() if len(found) > 1),
        *(
            f"`{name}` is in {owners[name][0]}, not in {file}"
            for name, file in weight_map.items()
            if len(owners.get(name, ())) == 1 and owners[name][0] != file
        ),
    ]
    if faults:
        raise IntegrityError(
            "index and shards do not agree",
            path=path,
            expected=f"each of {len(weight_map):,} tensors in the shard that the index says",
            found=listed(faults, _SHOWN, "; "),
            hint="Are some shards from another save? Get all files of the checkpoint again",
        )

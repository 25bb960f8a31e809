"""`.weights.json`: the shards in which the variables of each layer are. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tensorkeep.errors import IndexFileError, IntegrityError, LimitError
from tensorkeep.formats.keras._names import VARS
from tensorkeep.limits import MAX_INDEX_NBYTES
from tensorkeep.paths import is_plain_name
from tensorkeep.texts import listed


class _Document(msgspec.Struct, frozen=True):
    weight_map: dict[str, list[str]]
    metadata: dict[str, Any] = {}


class ShardIndex(msgspec.Struct, frozen=True):
    """What the index says.

    Attributes:
        weight_map: Path of each folder of variables to the names of the files with variables of it.
    """

    weight_map: Mapping[str, tuple[str, ...]]

    @property
    def files(self) -> tuple[str, ...]:
        """Names of all files, in order."""
        return tuple(sorted({name for names in self.weight_map.values() for name in names}))

    def check(self, paths: Mapping[str, Iterable[str]]) -> None:
        """Refuse files that disagree with the index; `paths` has the paths of the variables in each."""
        owners: dict[str, str] = {}
        found: dict[str, set[str]] = {}
        faults: list[str] = []
        for file, own in paths.items():
            for path in own:
                if path in owners:
                    faults.append(f"`{path}` is in {owners[path]} and {file}")
                owners[path] = file
                found.setdefault(path.rpartition("/")[0], set()).add(file)
        for folder in self.weight_map.keys() | found.keys():
            wanted, there = set(self.weight_map.get(folder, ())), found.get(folder, set())
            if wanted != there:
                where = listed(sorted(there)) or "no shard"
                faults.append(
                    f"variables of `{folder}` are in {where}, not {listed(sorted(wanted)) or 'in the index'}"
                )
        if faults:
            raise IntegrityError(
                "index and shards do not agree",
                expected="each variable in one shard, which the index names",
                found=listed(sorted(faults), 10, "; "),
                hint="Are some shards from another save? Get all files of the model again",
            )


def parse_shard_index(text: bytes) -> ShardIndex:
    """Parse an index."""
    if len(text) > MAX_INDEX_NBYTES:
        raise LimitError("index too large", expected=f"at most {MAX_INDEX_NBYTES:,} bytes", found=f"{len(text):,}")
    try:
        document = msgspec.convert(json.loads(text, object_pairs_hook=_distinct), _Document)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise IndexFileError("not an index of Keras's shards", found=f"{error!s:.200}") from None
    weight_map: dict[str, tuple[str, ...]] = {}
    for folder, names in document.weight_map.items():
        if not names or len(set(names)) != len(names) or not all(map(is_plain_name, names)):
            raise IndexFileError(
                "the index names files that are not beside it",
                expected=f"names of files for `{folder}`, each once",
                found=f"{names!r:.200}",
            )
        path = folder.removeprefix("/")
        if path in weight_map or path.rpartition("/")[2] != VARS:
            raise IndexFileError("the index does not list folders of variables", found=f"{folder!r:.200}")
        weight_map[path] = tuple(names)
    return ShardIndex(weight_map)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found

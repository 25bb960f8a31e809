"""What a listing of a bucket says of the steps in it, and of what dead processes left. Pure.

A bucket has no locks, so only time tells a dead process from a slow one. The time is the store's: an object is as old
as the newest object of the run is younger. No clock of a client is asked, and where a run stops, nothing ages.

- Files of a save are named by its token. If the last of them came a day ago, and no index names them, it is dead.
- A removal takes seconds. If the note that it left in place of an index is an hour old, it is dead.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from tensorkeep.layout import index_name
from tensorkeep.store.places._names import BASE_NAME, step_of
from tensorkeep.store.places._step import StepFiles
from tensorkeep.transport import StoredObject

SAVE_IS_DEAD_S: Final = 24 * 3600.0
REMOVAL_IS_DEAD_S: Final = 3600.0

INDEX: Final = index_name(BASE_NAME)

_match_shard = re.compile(
    re.escape(BASE_NAME) + r"-(?P<token>[0-9a-f]{8})-[0-9]{5,}-of-[0-9]{5,}\.safetensors(?:\.blocks)?", re.ASCII
).fullmatch
_match_staged = re.compile(r"\.(?P<token>[0-9a-f]{16})\.tensorkeep-staged", re.ASCII).fullmatch
"""What a file system of fsspec has until a file is complete."""


class ListedStep(msgspec.Struct, frozen=True):
    """The objects of one step.

    Attributes:
        objects: Name in the step's directory to object.
        newest: Seconds since 1970 of the newest object of the run, or None.
    """

    objects: dict[str, StoredObject]
    newest: float | None

    @property
    def identity(self) -> tuple[object, ...]:
        """A value that changes when any object does."""
        return tuple(
            sorted((name, each.nbytes, each.etag or each.modified or 0) for name, each in self.objects.items())
        )

    @property
    def index(self) -> StoredObject | None:
        """The index, or what took its place."""
        return self.objects.get(INDEX)

    @property
    def others(self) -> list[str]:
        """Names that no save of a step uses."""
        return [name for name in self.objects if name != INDEX and _token_of(name) is None]

    @property
    def files(self) -> StepFiles:
        """The size of the objects."""
        nbytes = sum(each.nbytes for each in self.objects.values())
        return StepFiles(nbytes, nbytes, sum(name.endswith(".safetensors") for name in self.objects))

    def is_older(self, name: str, seconds: float) -> bool:
        """Say whether the run has an object that came so much later than this one."""
        modified = self.objects[name].modified
        return modified is not None and self.newest is not None and self.newest - modified > seconds

    def dead(self, named: Collection[str]) -> list[str]:
        """Return the files of dead saves, given those that the index names."""
        saves: dict[str, list[str]] = {}
        for name in self.objects:
            token = _token_of(name)
            if token is not None:
                saves.setdefault(token, []).append(name)
        return sorted(
            name
            for names in saves.values()
            if all(self.is_older(name, SAVE_IS_DEAD_S) for name in names)
            for name in names
            if name not in named
        )


def steps_in(objects: Iterable[StoredObject]) -> dict[int, ListedStep]:
    """Return the steps, ascending, among the objects below the root of a store."""
    found: dict[int, dict[str, StoredObject]] = {}
    newest: float | None = None
    for each in objects:
        newest = max(newest or 0.0, each.modified) if each.modified is not None else newest
        directory, _, name = each.name.partition("/")
        step = step_of(directory)
        if step is not None and name:
            found.setdefault(step, {})[name] = each
    return {step: ListedStep(found[step], newest) for step in sorted(found)}


def is_of_save(name: str) -> bool:
    """Say whether a name is one that saves to buckets give to shards and the digests of their blocks."""
    return _match_shard(name) is not None


def _token_of(name: str) -> str | None:
    """Return what all files of one save have in their names."""
    match = _match_shard(name) or _match_staged(name)
    return match and match["token"]

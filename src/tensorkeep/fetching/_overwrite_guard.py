"""Which files of a destination may be replaced: a server chooses names, and must not choose what is lost."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Final

from tensorkeep.checkpoint import destination_exists
from tensorkeep.errors import RefusedError, TensorkeepError
from tensorkeep.fetching._destination import Destination
from tensorkeep.fetching._plan import Plan
from tensorkeep.fetching._unchanged import came_from
from tensorkeep.kinds.folder import read_manifest
from tensorkeep.layout import MANIFEST, locate, parse_index
from tensorkeep.transport import ByteRange, RemotePath, open_source

_USUAL: Final = "model"
"""The usual stem of a checkpoint; a single file with another name may belong to anyone."""

_OURS: Final = ".tensorkeep-"
"""Part of the names of what a fetch or a save keeps in a directory."""


def refuse_to_replace(place: Destination, plan: Plan, names: Iterable[str]) -> None:
    """Refuse to replace files that belong neither to the destination's checkpoint nor to an older version of it."""
    directory, remote = place.directory, _origin_of(plan)
    names = [name for name in names if not came_from(place.path_of(name), remote.joined(name))]
    there = sorted({found for name in names if (found := _in_the_way(directory, name)) is not None})
    if not there:
        return
    foreign = [name for name in there if name not in _owned(directory)]
    if foreign:
        raise RefusedError(
            "files that do not belong to the checkpoint would be replaced",
            path=directory,
            found=", ".join(foreign[:10]),
            hint="Move them away, or fetch into another directory",
        )


def refuse_hidden_beside_others(place: Destination, plan: Plan) -> None:
    """Refuse to put hidden files that only a signature names beside other files, such as a profile into a home."""
    hidden = [file.name for file in plan.files if file.role == "hidden"]
    new = [name for name in hidden if not os.path.lexists(place.path_of(name))]
    if new and _has_files(place.directory):
        raise RefusedError(
            "hidden files come only into a new or empty directory: programs read some of them without being asked",
            path=place.directory,
            found=", ".join(new[:10]),
            hint="Fetch into another directory",
        )


def _has_files(directory: str) -> bool:
    """Say whether a directory has files, other than what a running or interrupted fetch keeps there."""
    return os.path.isdir(directory) and any(_OURS not in name for name in os.listdir(directory))


def refuse_other_checkpoint(place: Destination, plan: Plan, unchanged: Collection[str]) -> None:
    """Refuse to replace a checkpoint that is not an older version of the one that comes."""
    names = {file.name for file in plan.files if file.name in plan.shards or file.name == plan.index}
    if plan.source is None:
        with suppress(TensorkeepError):
            names.update(read_manifest(place.directory))
    else:
        names.update(() if place.name else plan.source.entries)
    remote = _origin_of(plan)
    paths = {name: place.path_of(name) for name in names - set(unchanged)}
    other = [
        name for name, path in paths.items() if os.path.lexists(path) and not came_from(path, remote.joined(name))
    ]
    if other:
        raise destination_exists(place.directory, sorted(place.name or name for name in other))


def _origin_of(plan: Plan) -> RemotePath:
    """Return the directory that the names of files are relative to."""
    return RemotePath.of(plan.files[-1].path.split()[0] if plan.source is None else plan.source.directory)


def _in_the_way(directory: str, name: str) -> str | None:
    """Return the part of a name that is taken: a file in place of a folder, or anything under the whole name."""
    parts = name.split("/")
    for n_parts in range(1, len(parts) + 1):
        path = os.path.join(directory, *parts[:n_parts])
        is_last = n_parts == len(parts)
        if os.path.lexists(path) and (is_last or os.path.islink(path) or not os.path.isdir(path)):
            return "/".join(parts[:n_parts])
    return None


def _owned(directory: str) -> set[str]:
    """Return the names of files that an earlier save or fetch wrote."""
    names = {MANIFEST}
    with suppress(TensorkeepError):
        names.update(read_manifest(directory))
    with suppress(TensorkeepError):
        location = locate(directory)
        if location is not None and location.index is not None:
            names.update((location.index, *_shards(location.entry)))
        elif location is not None and location.stem == _USUAL:
            names.add(location.name)
    return names


def _shards(index: str) -> tuple[str, ...]:
    source = open_source(index)
    try:
        return parse_index(bytes(source.read(ByteRange(0, source.nbytes))), index, check=False).files
    finally:
        source.close()

"""Which files a path refers to: a directory, an index or a single file, under any name."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Final

import msgspec

from tensorkeep.errors import SourceMissingError, UnsupportedError
from tensorkeep.layout._file_names import index_names, stem_of_index, stem_of_weights, weights_name
from tensorkeep.paths import is_plain_name
from tensorkeep.texts import listed
from tensorkeep.transport import (
    PendingCommit,
    exists,
    finish_pending_commit,
    is_directory,
    is_remote,
    join,
    list_names,
    open_source,
    split,
    without_secrets,
)

DEFAULT_BASE: Final = "model"

_is_step = re.compile(r"step-[0-9]{8,15}", re.ASCII).fullmatch

_STORE: Final = "This is a CheckpointStore: open one of its steps, or tensorkeep.CheckpointStore(path).load()"


class Location(msgspec.Struct, frozen=True):
    """The files of one checkpoint.

    Attributes:
        directory: Their directory; empty for the current one.
        stem: What their names begin with, variant included, such as `model.fp16`.
        index: Name of the index; None for a single file.
        single: Name of the single file, if it exists.
        pending: A committed but unfinished save that this process may not finish, or None.
    """

    directory: str
    stem: str
    index: str | None
    single: str | None
    pending: PendingCommit | None

    @property
    def name(self) -> str:
        """Name of the file to open first."""
        return self.index or self.single or weights_name(self.stem)

    @property
    def entry(self) -> str:
        """Path of the file to open first."""
        return self.path_of(self.name)

    def path_of(self, name: str) -> str:
        """Return the path of a file; that of an unfinished save may still be in its staging directory."""
        return self.pending.resolve(name) if self.pending else join(self.directory, name)


def locate(path: str, variant: str | None = None) -> Location | None:
    """Find the files of a checkpoint; a save that was killed after its commit is finished first."""
    path = without_secrets(path)
    if is_directory(path):
        return _in_directory(path, variant)
    directory, name = split(path)
    stem = stem_of_index(name) or stem_of_weights(name)
    if stem is None or not is_plain_name(name):
        return None
    pending = _pending(directory, stem)
    if stem_of_index(name):
        return Location(directory, stem, name, None, pending)
    return Location(directory, stem, None, name, pending)


def _in_directory(directory: str, variant: str | None) -> Location:
    usual = DEFAULT_BASE + (f".{variant}" if variant else "")
    found = _at(directory, usual)
    if found is not None:
        return found
    stems = [stem for stem in _stems(directory) if variant is None or stem.endswith(f".{variant}")]
    locations = [location for stem in stems if (location := _at(directory, stem))]
    if len(locations) > 1:
        locations = _without_variants(locations)
    if len(locations) == 1:
        return locations[0]
    if not locations:
        _ask_for(directory, weights_name(usual))
        raise SourceMissingError(
            "no checkpoint in the directory",
            path=directory,
            expected=f"{weights_name(usual)} or {index_names(usual)[0]}",
            found=_listing(directory),
            hint=_STORE if any(map(_is_step, list_names(directory) or ())) else None,
        )
    raise UnsupportedError(
        "several checkpoints in the directory",
        path=directory,
        found=listed((location.name for location in locations), 10),
        hint="Open one of them by its path, or with variant= (--variant)",
    )


def _without_variants(locations: list[Location]) -> list[Location]:
    """Leave out variants of others, such as `unet.fp16` beside `unet`, as for the usual name."""
    stems = {location.stem for location in locations}
    return [location for location in locations if location.stem.rpartition(".")[0] not in stems]


def _ask_for(directory: str, name: str) -> None:
    """Request a file, so that a server can report a better reason than a missing file, such as denied access."""
    if is_remote(directory):
        with suppress(SourceMissingError):
            open_source(join(directory, name)).close()


def _at(directory: str, stem: str) -> Location | None:
    pending = _pending(directory, stem)
    index = next((name for name in index_names(stem) if _exists(directory, name, pending)), None)
    single = weights_name(stem) if _exists(directory, weights_name(stem), pending) else None
    return Location(directory, stem, index, single, pending) if index or single else None


def _pending(directory: str, stem: str) -> PendingCommit | None:
    return None if is_remote(directory) else finish_pending_commit(directory or os.curdir, stem)


def _exists(directory: str, name: str, pending: PendingCommit | None) -> bool:
    if pending is None:
        return exists(join(directory, name))
    return not pending.is_removed(name) and exists(pending.resolve(name))


def _stems(directory: str) -> list[str]:
    """List the stems of all checkpoints in a directory."""
    names = list_names(directory) or ()
    stems = (stem_of_index(name) or stem_of_weights(name) for name in names if is_plain_name(name))
    return list(dict.fromkeys(stem for stem in stems if stem))


def _listing(directory: str) -> str:
    found = list_names(directory)
    if found is None:
        return "neither; the server does not list its files"
    names = [name for name in found if not name.startswith(".")]
    return listed(names, 10) or "nothing"

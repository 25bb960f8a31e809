"""Where a save goes. One process or many, a directory or a store: every save plans, stages all files, and commits.

A destination promises:

1. `open` and `stage` change nothing that a reader sees.
2. `commit` makes the staged files the checkpoint as a whole, or raises and leaves the old one. It replaces only the
   checkpoint that `open` found, and removes only what `_removal` names.
3. `abandon` removes what was staged. It has no effect once `commit` was called.
4. Of two saves to one place, one raises: `BusyError` in a directory, `SourceChangedError` in a store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Protocol

from tensorkeep.checkpoint.saving._directory_destination import DirectoryDestination
from tensorkeep.checkpoint.saving._options import SaveOptions
from tensorkeep.checkpoint.saving._plan import SavePlan
from tensorkeep.checkpoint.saving._store_destination import StoreDestination
from tensorkeep.errors import UnsupportedError
from tensorkeep.transport import RemotePath, is_directory, is_remote, without_secrets


class Destination(Protocol):
    """The place of one save, as `destination_of` makes it for a plan."""

    max_writers: int
    """Files to stage side by side at most."""

    def open(self) -> None:
        """Take the lock of a directory, or look at the index in a store."""

    def stage(self, file: str, on_written: Callable[[int], None]) -> None:
        """Write one file of the plan; may be called from several threads."""

    def refresh(self) -> None:
        """Show that this save is alive while other processes write."""

    def collect(self, results: Mapping[str, bytes]) -> None:
        """Take in what other processes report of the files that they staged."""

    def commit(self) -> None:
        """Make the staged files the checkpoint."""

    def abandon(self) -> None:
        """Remove what was staged."""


def destination_of(directory: str, plan: SavePlan, options: SaveOptions) -> Destination:
    """Return the destination of a save; nothing is read or written yet."""
    if is_remote(directory):
        return StoreDestination(RemotePath.of(directory), plan, options)
    return DirectoryDestination(directory, plan, options)


def refuse_file_name(directory: str) -> None:
    """Refuse the name of a file where a directory is wanted."""
    if directory.endswith(".safetensors") and not os.path.isdir(directory):
        raise UnsupportedError(
            "a checkpoint is saved to a directory",
            path=directory,
            expected="the name of a directory",
            found="the name of a file",
            hint="tensorkeep.save writes a single file",
        )
    if is_remote(directory) and not is_directory(directory):
        raise UnsupportedError(
            "a URL that ends in a file extension names a file; a checkpoint needs a directory",
            path=without_secrets(directory),
            expected="the URL of a directory",
            hint="Let it end in a slash",
        )

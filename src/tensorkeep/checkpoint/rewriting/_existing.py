"""What is at a destination: another checkpoint is replaced only if the caller said so."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from errno import EEXIST
from typing import Protocol

from tensorkeep.checkpoint.saving import FileNames
from tensorkeep.errors import DestinationExistsError
from tensorkeep.kinds import Opened
from tensorkeep.texts import listed
from tensorkeep.transport import exists, is_remote, join, was_replaced, without_secrets


class LossGuard(Protocol):
    """Refuses a destination whose checkpoint would be lost."""

    def __call__(self, new: Collection[str] = ()) -> None:
        """Raise DestinationExistsError; `new` names files about to be written."""


def loss_guard(
    directory: str, stem: str, sources: Sequence[Opened], *, takes_all: bool, overwrite: bool
) -> LossGuard:
    """Return what `refuse_existing` does for these sources; they may be replaced if all their tensors are taken."""

    def refuse_loss(new: Collection[str] = ()) -> None:
        if not overwrite:
            refuse_existing(directory, stem, sources if takes_all else (), new)

    return refuse_loss


def refuse_existing(directory: str, stem: str, sources: Iterable[Opened], new: Collection[str] = ()) -> None:
    """Refuse a destination with a checkpoint that is not one of the sources; `new` names files about to be written.

    A source may be replaced, as a whole: the caller has named it, and its tensors are the ones being written. What
    was saved there after the source was opened is another checkpoint.
    """
    places = {_place(join(directory, name)): name for name in (*FileNames.of_safetensors(stem).entries, *new)}
    replaced = [source for source in sources if _place(source.path) in places and _is_still_there(source)]
    own = {_place(path) for source in replaced for path in (source.path, *_files_of(source))}
    found = [name for place, name in places.items() if place not in own and _is_there(join(directory, name))]
    if found:
        raise destination_exists(directory, found)


def destination_exists(directory: str, found: Collection[str]) -> DestinationExistsError:
    """Return the error for a destination with files of another checkpoint."""
    return DestinationExistsError(
        "there is a checkpoint at the destination, which would be replaced",
        path=without_secrets(directory),
        found=listed(found),
        hint="Choose another; overwrite=True (--force) replaces its tensors and keeps other files",
    ).numbered(EEXIST)


def _files_of(source: Opened) -> list[str]:
    return [file.name for file in source.sources.values()]


def _is_still_there(source: Opened) -> bool:
    """Say whether the files are all of what is open, and nobody has replaced them since."""
    return source.is_replaceable and not any(was_replaced(file) for file in source.sources.values())


def _is_there(path: str) -> bool:
    return exists(path) if is_remote(path) else os.path.lexists(path)


def _place(path: str) -> str:
    """Return the name that is replaced: a link itself is, and not the file that it leads to."""
    if is_remote(path):
        return str(path)
    directory, name = os.path.split(path)
    return os.path.join(os.path.realpath(directory), name)

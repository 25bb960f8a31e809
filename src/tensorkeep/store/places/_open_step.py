"""A step, opened as what a store wrote: its index and all headers are checked, and its record has its number."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tensorkeep.errors import IntegrityError, SourceMissingError, TensorkeepError, UnsupportedError
from tensorkeep.kinds import Opened, OpenOptions
from tensorkeep.kinds.safetensors import SavedDirectory, as_saved_directory, open_safetensors
from tensorkeep.store.places._record import StepRecord, read_record

Opens: TypeAlias = Callable[[str, OpenOptions], Opened]
"""Opens what is at a path."""


class ForeignStepError(UnsupportedError):
    """A directory with a step's name is a checkpoint, but not a step of the store."""


def open_step(
    path: str,
    step: int,
    options: OpenOptions,
    holds: Callable[[str], bool],
    *,
    entry: str | None = None,
    opens: Opens = open_safetensors,
) -> SavedDirectory:
    """Open a step, by its index if that is given as the entry; `holds` says whether anything is at its path."""
    try:
        opened = opens(entry or path, options)
    except (IntegrityError, SourceMissingError):
        if holds(path):
            raise
        raise SourceMissingError("no such step", path=path, found="nothing, or it was just removed") from None
    directory = as_saved_directory(opened)
    if directory is not None and record_of(directory, step) is not None:
        return directory
    opened.close()
    raise foreign(path)


def record_of(opened: SavedDirectory, step: int) -> StepRecord | None:
    """Return the record of a step, or None if it names another."""
    record = read_record(opened.index_metadata)
    return record if record is not None and record.step == step else None


def is_replaced(opened: SavedDirectory) -> bool:
    """Say whether another step has taken the place of an open one, or nothing is there any more."""
    try:
        return opened.is_replaced()
    except TensorkeepError:
        return True


def foreign(path: str) -> ForeignStepError:
    """Return the error for a checkpoint that is not a step of the store."""
    return ForeignStepError(
        "not a step of this store",
        path=path,
        found="a checkpoint that was not written by a store, or a step with another number",
        hint="tensorkeep.open opens it",
    )

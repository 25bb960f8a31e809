"""A step, opened as what a store wrote: its index and all headers are checked, and its record has its number."""

from __future__ import annotations

from collections.abc import Callable

from tensorkeep.errors import IntegrityError, SourceMissingError, UnsupportedError
from tensorkeep.kinds import OpenOptions
from tensorkeep.kinds.safetensors import Checkpoint, open_safetensors, with_index
from tensorkeep.store.places._record import StepRecord, read_record


class ForeignStepError(UnsupportedError):
    """A directory with a step's name is a checkpoint, but not a step of the store."""


def open_step(
    path: str, step: int, options: OpenOptions, holds: Callable[[str], bool], entry: str | None = None
) -> Checkpoint:
    """Open a step, by its index if that is given as the entry; `holds` says whether anything is at its path."""
    try:
        opened = open_safetensors(entry or path, options)
    except (IntegrityError, SourceMissingError):
        if holds(path):
            raise
        raise SourceMissingError("no such step", path=path, found="nothing, or no longer") from None
    checkpoint = with_index(opened)
    if checkpoint is not None and record_of(checkpoint, step) is not None:
        return checkpoint
    opened.close()
    raise foreign(path)


def record_of(opened: Checkpoint, step: int) -> StepRecord | None:
    """Return the record of a step, or None if it names another."""
    record = read_record(opened.index.metadata)
    return record if record is not None and record.step == step else None


def foreign(path: str) -> ForeignStepError:
    """Return the error for a checkpoint that is no step of the store."""
    return ForeignStepError(
        "not a step of this store",
        path=path,
        found="a checkpoint that was not written by a store, or a step with another number",
        hint="tensorkeep.open opens it",
    )

"""Removing steps, and the leftovers of dead processes."""

from __future__ import annotations

import os
from contextlib import suppress

from tensorkeep.errors import SourceMissingError, TensorkeepError, as_transport_error
from tensorkeep.store._names import BASE_NAME, step_name
from tensorkeep.transport import delete_directory, move_aside, sync_directory, transaction


def remove_step(root: str, step: int) -> None:
    """Remove a step. It disappears at once; a process that has it open can still read it."""
    path = os.path.join(root, step_name(step))
    if not os.path.isdir(path):
        raise SourceMissingError("no such step", path=path, found="nothing, or no longer")
    with (
        transaction(path, BASE_NAME, durable=False, patience_s=0),  # its lock keeps out a save of the step
        as_transport_error("could not remove the step", path),
    ):
        aside = move_aside(path)
    with as_transport_error("could not remove the step", path):
        sync_directory(root)  # before the files: a power cut must not leave a step's name without its files
        delete_directory(aside)


def sweep_step(path: str) -> None:
    """Remove what an interrupted save left in a step's directory, and the directory if nothing else is in it."""
    with suppress(TensorkeepError, OSError):
        with transaction(path, BASE_NAME, durable=False, patience_s=0):
            pass  # entering a transaction cleans up after dead ones
        os.rmdir(path)

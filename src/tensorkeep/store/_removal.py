"""Removing steps, and the leftovers of dead processes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from tensorkeep.errors import BusyError, SourceMissingError, TensorkeepError, as_transport_error
from tensorkeep.store._names import BASE_NAME, step_name
from tensorkeep.store._retention import Retention
from tensorkeep.store._steps import Step
from tensorkeep.transport import delete_directory, move_aside, sync_directory, transaction


def outdated(rules: Retention, found: Iterable[Step], saved: int | None = None) -> list[int]:
    """Return the steps that no rule keeps; never the one just saved, nor what no store wrote."""
    found = list(found)
    whole = [step.record for step in found if step.condition == "whole" and step.record]
    damaged = [step.step for step in found if step.condition == "damaged"]
    return sorted([
        *rules.to_remove(whole, saved),
        *rules.damaged_to_remove(damaged, (record.step for record in whole)),
    ])


def remove_all(root: str, steps: Iterable[int]) -> list[int]:
    """Remove steps, and return the ones that are gone; one that is being saved again stays."""
    removed: list[int] = []
    for step in steps:
        with suppress(BusyError, SourceMissingError):
            remove_step(root, step)
            removed.append(step)
    return removed


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

"""Removing the steps that no rule keeps."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from tensorkeep.errors import BusyError, SourceMissingError
from tensorkeep.store._retention import Retention
from tensorkeep.store.places import Place, Step


def outdated(rules: Retention, found: Iterable[Step], saved: int | None = None) -> list[int]:
    """Return the steps that no rule keeps; never the one just saved, nor what no store wrote."""
    found = list(found)
    whole = [step.record for step in found if step.condition == "whole" and step.record]
    damaged = [step.step for step in found if step.condition == "damaged"]
    return sorted([
        *rules.to_remove(whole, saved),
        *rules.damaged_to_remove(damaged, (record.step for record in whole)),
    ])


def remove_all(place: Place, steps: Iterable[int], found: Iterable[Step]) -> list[int]:
    """Remove steps that were found, and return the ones that are gone; one that is being saved again stays."""
    by_number = {step.step: step for step in found}
    removed: list[int] = []
    for step in steps:
        with suppress(BusyError, SourceMissingError):
            place.remove(step, by_number[step])
            removed.append(step)
    return removed

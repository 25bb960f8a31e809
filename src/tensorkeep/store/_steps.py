"""The steps of a store as a process knows them: unchanged ones are not read again."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tensorkeep.store.places import Identity, Place, Step, StepFiles


class StepListing(msgspec.Struct, frozen=True):
    """A step in the listing of a store.

    Attributes:
        found: The step.
        files: The size of its files.
        is_latest: Whether it is the whole step that was saved last.
        is_best: Whether it is the whole step with the best metric.
    """

    found: Step
    files: StepFiles
    is_latest: bool
    is_best: bool


class StepReader:
    """Reads the steps of a store; unchanged steps are not read again."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._known: dict[int, tuple[Identity, Step]] = {}

    def newest_first(self) -> list[Step]:
        """Return all steps, whole or not, the last saved first."""
        return newest_first(self.survey())

    def survey(self) -> list[Step]:
        """Return all steps, ascending, whole or not; no tensor's data is read."""
        while True:
            seen = self.place.look()
            found = [self._look_into(step, identity) for step, identity in seen.items()]
            if None not in found or seen.keys() == self.place.look().keys():
                return [step for step in found if step is not None]
            # one was removed meanwhile, perhaps because of newer ones: look again

    def _look_into(self, step: int, identity: Identity) -> Step | None:
        known = self._known.get(step)
        if known is not None and known[0] == identity:
            return known[1]
        self._known.pop(step, None)
        examined = self.place.examine(step, identity)
        if examined is None:
            return None
        if examined.identity and examined.found.condition == "whole":
            self._known[step] = (examined.identity, examined.found)
        return examined.found

    def note_damage(self, found: Step, problem: str) -> None:
        """Remember that a step's data is damaged, which its headers do not show."""
        known = self._known.get(found.step)
        if known is not None and known[1] is found:
            damaged = msgspec.structs.replace(found, condition="damaged", problem=problem)
            self._known[found.step] = (known[0], damaged)


def newest_first(steps: Iterable[Step]) -> list[Step]:
    """Return steps, given ascending, with the last saved first, whatever its number.

    A step whose time is unknown is taken to be as old as the one with the next lower number.
    """
    order: dict[int, tuple[str, int]] = {}
    saved_at = ""
    for found in (steps := list(steps)):
        saved_at = found.record.saved_at if found.record else saved_at
        order[found.step] = (saved_at, found.step)
    return sorted(steps, key=lambda found: order[found.step], reverse=True)


def latest_of(newest_first: Iterable[Step]) -> int | None:
    """Return the whole step that was saved last, or None."""
    return next((found.step for found in newest_first if found.condition == "whole"), None)


def whole_metrics(steps: Iterable[Step]) -> dict[int, dict[str, float]]:
    """Return the metrics of the whole steps, by number."""
    return {step.step: step.metrics for step in steps if step.condition == "whole"}

"""The state of a step, read only after every byte was verified."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Literal, TypeVar

import msgspec

from tensorkeep.checkpoint import verify
from tensorkeep.encryption import Keys
from tensorkeep.errors import IntegrityError, SourceChangedError, SourceMissingError, TensorkeepError
from tensorkeep.kinds import OpenOptions, refuse
from tensorkeep.kinds.safetensors import SavedDirectory
from tensorkeep.parallel import Progress
from tensorkeep.store._newest import DamagedCheckpointWarning, load_newest_whole
from tensorkeep.store._rules import Rules
from tensorkeep.store._step_errors import best_step, check_step_argument, listing_steps
from tensorkeep.store._steps import StepReader
from tensorkeep.store.places import Place, Step, check_step, is_replaced

T = TypeVar("T")

_ATTEMPTS: Final = 50
"""How often a step is read again because it was replaced or removed meanwhile."""


class DamagedStepWarning(DamagedCheckpointWarning):
    """The newest step is damaged, and an older one was loaded instead."""


class StepLoader(msgspec.Struct, frozen=True):
    """Reads the steps of a store.

    Attributes:
        place: Where the steps are.
        steps: The steps.
        rules: Which of them is the best.
        keys: Keys that were given for encrypted steps; None for keys of the environment.
    """

    place: Place
    steps: StepReader
    rules: Rules
    keys: Keys | None = None

    def load(
        self,
        step: int | Literal["latest", "best"],
        opening: OpenOptions,
        read: Callable[[SavedDirectory], T],
        *,
        checks: bool,
        progress: Progress | None = None,
    ) -> T:
        """Return what a function reads of a step, which is verified first if `checks`."""
        opening = msgspec.structs.replace(opening, keys=self.keys)
        load = partial(self._load_step, opening=opening, read=read, checks=checks, progress=progress)
        if step == "latest":
            return _load_newest(self.steps, load)
        if step != "best":
            check_step_argument(step, self.steps)
            with listing_steps(self.steps):
                return load(check_step(step))
        return self._load_best(load)

    def _load_step(
        self,
        step: int,
        opening: OpenOptions,
        read: Callable[[SavedDirectory], T],
        *,
        checks: bool,
        progress: Progress | None,
    ) -> T:
        path = self.place.path_of(step)
        for _ in range(_ATTEMPTS):
            try:
                with self.place.open(step, opening) as opened:
                    if not checks or self._is_as_saved(opened, step, progress):
                        return read(opened)
            except SourceChangedError:
                if not self.place.holds(path):
                    raise SourceMissingError("no such step", path=path, found="it was removed meanwhile") from None
        raise SourceChangedError("the step keeps being replaced", path=path)

    def _is_as_saved(self, opened: SavedDirectory, step: int, progress: Progress | None) -> bool:
        """Verify a step; return False if another one has replaced the open one.

        The index has the digests of all headers, and these have the digests of all tensors. So if the index that is
        there is still the open one, the verified bytes belong to the open step.
        """
        path = self.place.path_of(step)
        try:
            verification = verify(path, progress=progress, trust=False)  # a run trusts its own steps
            if opened.is_replaced():
                return False
        except TensorkeepError:
            if not self.place.holds(path):
                raise SourceMissingError("no such step", path=path, found="it was removed meanwhile") from None
            if is_replaced(opened):
                return False
            raise
        refuse(verification.findings, path)
        if not verification.is_whole:
            raise IntegrityError("the step has no digests", path=path, found="a file that another program wrote")
        return True

    def _load_best(self, load: Callable[[int], T]) -> T:
        """Load the best step, or a better one if another process saves one and removes the best meanwhile."""
        while True:
            step = best_step(self.steps, self.rules.current())
            try:
                return load(step)
            except SourceMissingError:
                if self.place.holds(self.place.path_of(step)):
                    raise


def _load_newest(steps: StepReader, load: Callable[[int], T]) -> T:
    """Load the whole step that was saved last."""
    by_path: dict[str, Step] = {}
    damaged: list[int] = []

    def newest_first() -> Iterable[str]:
        by_path.clear()
        by_path.update((step.path, step) for step in steps.newest_first() if _is_candidate(step))
        return list(by_path)

    def load_whole(path: str) -> T:
        step = by_path[path]
        if step.condition != "whole":
            raise IntegrityError(step.problem or "")
        return load(step.step)

    def on_damage(path: str, error: TensorkeepError) -> None:
        step, problem = by_path[path], str(error)
        if step.condition == "whole":
            steps.note_damage(step, problem)
        damaged.append(step.step)
        warnings.warn(
            f"step {step.step} is not as it was saved, and an older one is tried: {problem}",
            DamagedStepWarning,
            stacklevel=6,
        )

    found = load_newest_whole(
        newest_first, load_whole, on_damage, (IntegrityError, SourceMissingError), steps.place.holds
    )
    if found is None:
        raise SourceMissingError(
            "no whole step in the store",
            path=steps.place.root,
            found=f"steps {', '.join(map(str, sorted(damaged)))}, which are damaged" if damaged else "no steps",
        )
    return found[1]


def _is_candidate(step: Step) -> bool:
    return step.condition not in {"incomplete", "foreign"}

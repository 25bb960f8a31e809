"""The state of a step, read only after every byte was verified."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Final

from tensorkeep.checkpoint import verify
from tensorkeep.errors import IntegrityError, SourceChangedError, SourceMissingError, TensorkeepError
from tensorkeep.kinds import LoadOptions, OpenOptions, refuse
from tensorkeep.kinds.safetensors import Checkpoint, read_index
from tensorkeep.parallel import Progress
from tensorkeep.store._newest import DamagedCheckpointWarning, load_newest_whole
from tensorkeep.store._steps import Step, StepReader, open_step

_ATTEMPTS: Final = 50
"""How often a step is read again because it was replaced or removed meanwhile."""


class DamagedStepWarning(DamagedCheckpointWarning):
    """The newest step is damaged, and an older one was loaded instead."""


def load_step(path: str, opening: OpenOptions, loading: LoadOptions, *, checks: bool) -> Any:
    """Load a step, and verify it first if `checks`."""
    for _ in range(_ATTEMPTS):
        with open_step(path, opening) as opened:
            if not checks or _is_as_saved(opened, path, loading.progress):
                return opened.load_state(loading)
    raise SourceChangedError("the step keeps being replaced", path=path)


def _is_as_saved(opened: Checkpoint, path: str, progress: Progress | None) -> bool:
    """Verify a step; return False if another one has replaced the open one.

    The index has the digests of all headers, and these have the digests of all tensors. So if the index on disk is
    still the open one, the verified bytes belong to the open step.
    """
    try:
        verification = verify(path, progress=progress)
        if read_index(opened.path) != opened.index:
            return False
    except TensorkeepError:
        if os.path.isdir(path):
            raise
        raise SourceMissingError("no such step", path=path, found="it was removed meanwhile") from None
    refuse(verification.findings, path)
    if not verification.is_whole:
        raise IntegrityError("the step has no digests", path=path, found="a file that another program wrote")
    return True


def load_newest(steps: StepReader, load: Callable[[str], Any]) -> Any:
    """Load the whole step that was saved last."""
    by_path: dict[str, Step] = {}
    damaged: list[int] = []

    def newest_first() -> Iterable[str]:
        by_path.clear()
        by_path.update((step.path, step) for step in steps.newest_first() if _is_candidate(step))
        return list(by_path)

    def load_whole(path: str) -> Any:
        step = by_path[path]
        if step.condition != "whole":
            raise IntegrityError(step.problem or "")
        return load(path)

    def on_damage(path: str, error: TensorkeepError) -> None:
        step, problem = by_path[path], str(error)
        if step.condition == "whole":
            steps.note_damage(step, problem)
        damaged.append(step.step)
        warnings.warn(
            f"step {step.step} is not as it was saved, and an older one is tried: {problem}",
            DamagedStepWarning,
            stacklevel=5,
        )

    found = load_newest_whole(newest_first, load_whole, on_damage, (IntegrityError, SourceMissingError))
    if found is None:
        raise SourceMissingError(
            "no whole step in the store",
            path=steps.root,
            found=f"steps {', '.join(map(str, sorted(damaged)))}, which are damaged" if damaged else "no steps",
        )
    return found[1]


def load_best(path_of_best: Callable[[], str], load: Callable[[str], Any]) -> Any:
    """Load the best step; if another process removes it meanwhile, because of a better one, that one."""
    while True:
        path = path_of_best()
        try:
            return load(path)
        except SourceMissingError:
            if os.path.isdir(path):
                raise


def _is_candidate(step: Step) -> bool:
    return step.condition not in {"incomplete", "foreign"}

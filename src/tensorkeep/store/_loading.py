"""The state of a step, read when every byte of it was found to be the one that was saved."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any, Final

from tensorkeep.checkpoint import verify
from tensorkeep.errors import IntegrityError, SourceChangedError, SourceMissingError, TensorkeepError
from tensorkeep.kinds import OpenOptions, refuse
from tensorkeep.kinds.safetensors import Checkpoint, read_index
from tensorkeep.store._steps import Step, StepReader, open_step

_ATTEMPTS: Final = 50
"""How often a step is read anew because it was replaced or removed in the meantime."""


class DamagedStepWarning(UserWarning):
    """The newest step is not as it was saved, and an older one was loaded in its place."""


def load_step(path: str, options: OpenOptions, read: Callable[[Checkpoint], Any], *, checks: bool) -> Any:
    """Read a step."""
    for _ in range(_ATTEMPTS):
        with open_step(path, options) as opened:
            if not checks or _is_as_saved(opened, path):
                return read(opened)
    raise SourceChangedError("the step is replaced all the time", path=path)


def _is_as_saved(opened: Checkpoint, path: str) -> bool:
    """Say whether all bytes are those that were saved; False where another step stands there now.

    What was checked is what is open: the index has the digests of all headers, and these have those of all tensors.
    """
    try:
        found = verify(path)
        if read_index(opened.path) != opened.index:
            return False
    except TensorkeepError:
        if os.path.isdir(path):
            raise
        raise SourceMissingError("no such step", path=path, found="it was removed meanwhile") from None
    refuse(found.findings, path)
    if not found.is_whole:
        raise IntegrityError("the step has no digests", path=path, found="a file that another program wrote")
    return True


def load_newest(steps: StepReader, load: Callable[[str], Any]) -> Any:
    """Load the step that was saved last of those that are as they were saved."""
    damaged: set[int] = set()
    while True:
        for step in steps.newest_first():
            if step.step in damaged or step.condition in {"incomplete", "foreign"}:
                continue
            problem = step.problem or ""
            if step.condition == "whole":
                try:
                    return load(step.path)
                except (IntegrityError, SourceMissingError) as error:
                    if not os.path.isdir(step.path):
                        break  # removed, as newer ones had come
                    problem = str(error)
                    steps.note_damage(step, problem)
            damaged.add(step.step)
            _warn(step, problem)
        else:
            raise SourceMissingError(
                "no whole step in the store",
                path=steps.root,
                found=f"steps {', '.join(map(str, sorted(damaged)))}, which are damaged"
                if damaged
                else "none at all",
            )


def _warn(step: Step, problem: str) -> None:
    warnings.warn(
        f"step {step.step} is not as it was saved, and an older one is tried: {problem}",
        DamagedStepWarning,
        stacklevel=4,
    )

"""The names of steps in a store, and of the file beside them. Pure."""

from __future__ import annotations

import re
from typing import Final

from tensorkeep.layout import checked_step

BASE_NAME: Final = "model"
"""The start of the names of a step's files."""

RULES_NAME: Final = "tensorkeep-store.json"
"""The file beside the steps with the rules of the store."""

MAX_RULES_NBYTES: Final = 2**16

MAX_STEP: Final = 10**15
"""Exclusive limit of step numbers, so that names stay short."""

_match_step = re.compile(r"step-(?P<step>[0-9]{8,15})", re.ASCII).fullmatch


def check_step(step: int) -> int:
    """Return a step number as an int, after checking it."""
    return checked_step(step, MAX_STEP - 1)


def step_name(step: int) -> str:
    """Return the name of the directory of a step, such as `step-00000500`: names sort as steps do, up to 10**8."""
    return f"step-{step:08d}"


def step_of(name: str) -> int | None:
    """Return the step number in a directory name, or None."""
    found = _match_step(name)
    step = int(found["step"]) if found else None
    return step if step is not None and step_name(step) == name else None

"""The names that stand in a store: of steps, and of what is on its way out. Pure."""

from __future__ import annotations

import re
import secrets
from typing import Final

from tensorkeep.errors import UnsupportedError

BASE_NAME: Final = "model"
"""What the names of the files of a step begin with."""

MAX_STEP: Final = 10**15
"""Steps are less than this, so that names stay short."""

_match_step = re.compile(r"step-(?P<step>[0-9]{8,15})", re.ASCII).fullmatch
_match_removed = re.compile(r"\.step-[0-9]{8,15}\.tensorkeep-removed-[0-9a-f]{16}", re.ASCII).fullmatch


def check_step(step: int) -> int:
    """Return the number of a step."""
    try:
        number = step.__index__()
    except AttributeError:
        number = -1
    if isinstance(step, bool) or not 0 <= number < MAX_STEP:
        raise UnsupportedError(
            "no number of a step", expected=f"an integer from 0 below {MAX_STEP:,}", found=repr(step)
        )
    return number


def step_name(step: int) -> str:
    """Return the name of the directory of a step, such as `step-00000500`: names sort as steps do, up to 10**8."""
    return f"step-{step:08d}"


def step_of(name: str) -> int | None:
    """Return the number of a step."""
    found = _match_step(name)
    step = int(found["step"]) if found else None
    return step if step is not None and step_name(step) == name else None


def removed_name(step: int) -> str:
    """Return a name that nothing has yet for a step that is being removed."""
    return f".{step_name(step)}.tensorkeep-removed-{secrets.token_hex(8)}"


def is_removed(name: str) -> bool:
    """Say whether a name is that of a step that is being removed."""
    return _match_removed(name) is not None

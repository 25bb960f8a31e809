"""The numbers of steps, as callers give them. Pure."""

from __future__ import annotations

from tensorkeep.errors import UnsupportedError


def checked_step(step: int, largest: int) -> int:
    """Return the number of a step as an int; refuse another one than 0 to `largest`."""
    number = -1 if isinstance(step, bool) or not hasattr(step, "__index__") else step.__index__()
    if not 0 <= number <= largest:
        raise UnsupportedError(
            "not the number of a step", expected=f"an integer from 0 to {largest:,}", found=repr(step)
        )
    return number

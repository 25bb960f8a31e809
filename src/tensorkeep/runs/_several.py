"""Several objects as one part of a state: a dict, list or tuple, and the same of their states. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tensorkeep.errors import StateDictMismatchError


def pairs(target: Any, saved: Any, part: str) -> Iterator[tuple[Any, Any, str]]:
    """Yield each of several objects with its state and its place; refuse the states of other objects."""
    targets = _by_key(target)
    states = _by_key(saved) if isinstance(saved, Mapping | list | tuple) else {}
    if targets.keys() != states.keys():
        raise StateDictMismatchError(
            f"{part} has other objects in the checkpoint",
            expected=", ".join(map(str, targets)) or "none",
            found=", ".join(map(str, states)) or "none",
            hint="Nothing was changed",
            missing=[f"{part}.{key}" for key in targets if key not in states],
            unexpected=[f"{part}.{key}" for key in states if key not in targets],
        )
    for key, item in targets.items():
        yield item, states[key], f"{part}.{key}"


def _by_key(several: Mapping[Any, Any] | list[Any] | tuple[Any, ...]) -> dict[Any, Any]:
    return dict(several) if isinstance(several, Mapping) else dict(enumerate(several))

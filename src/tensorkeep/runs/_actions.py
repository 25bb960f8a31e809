"""Changes to the objects of a run, made one after the other once all of them are known to be possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

Action: TypeAlias = Callable[[], object]
"""Changes one object. What could be wrong with the data was checked when it was made."""


def apply(actions: Iterable[tuple[str, Action]]) -> None:
    """Change the objects; if one fails in its own loading code, note which ones were changed."""
    changed: list[str] = []
    for part, action in actions:
        try:
            action()
        except Exception as error:
            done = ", ".join(dict.fromkeys(changed)) or "nothing"
            error.add_note(f"restore changed {done} before this error, and perhaps part of {part}")
            raise
        changed.append(part)

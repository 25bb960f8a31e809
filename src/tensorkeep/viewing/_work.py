"""Long work in a thread: it reports progress, and stops when nobody listens any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, Final

import msgspec

_MAX_ROWS: Final = 2000
"""Rows that wait for a slow reader; then the work waits."""


class StoppedError(Exception):
    """Nobody listens any more."""


class Outbox:
    """What a thread has to tell, until the event loop takes it.

    Attributes:
        is_begun: Whether the work has begun.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._progress: tuple[int, int] | None = None
        self._rows: list[Any] = []
        self._is_stopped = False
        self.is_begun = False

    def begin(self) -> None:
        """Say that the work begins."""
        self.is_begun = True
        self.check()

    def check(self) -> None:
        """End the work if nobody listens."""
        if self._is_stopped:
            raise StoppedError

    def progress(self, done: int, total: int) -> None:
        """Say how far the work is; only the last word counts."""
        self.check()
        self._progress = done, total

    def add(self, row: Any) -> None:
        """Give a row of the answer."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped or len(self._rows) < _MAX_ROWS)
            self.check()
            self._rows.append(row)

    def take(self) -> list[dict[str, Any]]:
        """Return what is new, as lines to send."""
        with self._changed:
            rows, self._rows = self._rows, []
            progress, self._progress = self._progress, None
            self._changed.notify_all()
        return [{name: value} for name, value in (("rows", rows), ("progress", progress)) if value]

    def stop(self) -> None:
        """Let the work end at its next word."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()


class Work(msgspec.Struct, frozen=True):
    """Something that takes long.

    Attributes:
        run: Does it, and returns the result as JSON has it.
        key: Equal for works that have equal results; None if they may differ, or come as rows.
    """

    run: Callable[[Outbox], Any]
    key: Hashable = None

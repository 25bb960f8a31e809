"""Saves in the background, one after another, and removals that wait for them.

A Trainer saves a checkpoint and then removes the one that it replaces. In the background the new one may not exist
yet, so a removal waits for the saves that were started before it, and is not done if they fail.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Final

from tensorkeep.checkpoint import SaveHandle, save_in_background
from tensorkeep.tensors import Prepared

_numbers: Final = count()
"""Numbers the plugins, so that each has a queue of its own."""


class _Save:
    """A save that was started.

    Attributes:
        path: The file that it writes.
        removals: Paths to remove when it is written.
        is_over: Whether it is written and its removals are done, or it has failed.
        handle: The handle of the background save; None until it is known.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.removals: list[str] = []
        self.is_over = False
        self.handle: SaveHandle | None = None

    def error(self) -> BaseException | None:
        """Return its exception, or None if it has not failed."""
        return self.handle.exception() if self.handle is not None and self.handle.done() else None


class PendingSaves:
    """The saves of one plugin; copies and pickles of it start empty."""

    def __init__(self, remove: Callable[[str], None]) -> None:
        self._remove = remove
        self._place = f"lightning {next(_numbers)}"
        self._lock = threading.Lock()
        self._saves: list[_Save] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return PendingSaves, (self._remove,)

    def start(
        self, make: Callable[[], Prepared], write: Callable[[Prepared], None], path: str, *, max_waiting: int
    ) -> None:
        """Copy a state, and write the copy when all earlier saves are written."""
        save = _Save(path)
        with self._lock:
            self._saves.append(save)
        try:
            save.handle = save_in_background(
                make,
                partial(self._write, save, write),
                path=path,
                place=self._place,
                max_waiting=max_waiting,
            )
        except BaseException as error:
            with self._lock:
                self._saves = [other for other in self._saves if other is not save and other.error() is not error]
            raise

    def _write(self, save: _Save, write: Callable[[Prepared], None], make: Prepared) -> None:
        """Write, then do the removals, including those added meanwhile."""
        try:
            write(make)
            while path := self._next_removal(save):
                self._remove(path)
        finally:
            save.is_over = True

    def _next_removal(self, save: _Save) -> str | None:
        with self._lock:
            save.is_over = not save.removals
            return None if save.is_over else save.removals.pop(0)

    def remove(self, path: str) -> None:
        """Remove a checkpoint when all saves started so far are written."""
        with self._lock:
            last = self._saves[-1] if self._saves else None
            is_queued = last is not None and not last.is_over
            if last is not None and is_queued:
                last.removals.append(path)
        if not is_queued:
            self._remove(path)

    def paths(self) -> set[str]:
        """Return the paths that are not written yet, except those that will be removed afterwards."""
        with self._lock:
            unwritten = [save for save in self._saves if not save.is_over]
        return {save.path for save in unwritten} - {path for save in unwritten for path in save.removals}

    def raise_failed(self) -> None:
        """Raise the errors of finished saves, and forget all finished saves."""
        with self._lock:
            over = [save for save in self._saves if save.handle is not None and save.handle.done()]
            self._saves = [save for save in self._saves if save not in over]
        errors = [(save, error) for save in over if (error := save.error()) is not None]
        if not errors:
            return
        save, error = errors[0]
        error.add_note(f"This error was raised by a save in the background, to {save.path}.")
        for later, another in errors[1:]:
            error.add_note(f"The save to {later.path} failed too: {another}")
        raise error

    def wait(self) -> None:
        """Wait until everything is written and removed."""
        with self._lock:
            handles = [save.handle for save in self._saves]
        for handle in handles:
            if handle is not None:
                handle.wait()
        self.raise_failed()

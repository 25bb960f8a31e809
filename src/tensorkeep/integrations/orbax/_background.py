"""A save in the background, and what orbax's classes offer to wait for it."""

from __future__ import annotations

from tensorkeep.checkpoint import SaveHandle


class OneSave:
    """At most one save at a time."""

    def __init__(self) -> None:
        self._handle: SaveHandle | None = None

    def wait_until_finished(self) -> None:
        """Wait until what is being saved is complete.

        Raises:
            BaseException: What the save raised.
        """
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.result()

    def _earlier_error(self) -> BaseException | None:
        """Wait until what is being saved is complete, and return what it raised."""
        handle, self._handle = self._handle, None
        return None if handle is None else handle.exception()

    def check_for_errors(self) -> None:
        """Raise what a save in the background raised, if it has ended.

        Raises:
            BaseException: What the save raised.
        """
        if self._handle is not None and self._handle.done():
            self.wait_until_finished()

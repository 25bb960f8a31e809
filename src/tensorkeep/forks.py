"""Libraries whose background threads do not survive a fork."""

from __future__ import annotations

import os


class LibraryThreads:
    """Whether the threads of a library still run.

    Attributes:
        are_lost: Whether this process was forked from one that had started them. The library would wait
            for them forever.
    """

    def __init__(self) -> None:
        self._are_started = False
        self.are_lost = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._lose)

    def start(self) -> None:
        """Note that the library is in use."""
        self._are_started = True

    def _lose(self) -> None:
        self.are_lost = self._are_started

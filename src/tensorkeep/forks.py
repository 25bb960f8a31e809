"""Threads that a library keeps, and that a process which is forked from one with them has not."""

from __future__ import annotations

import os


class LibraryThreads:
    """Whether the threads of a library are there.

    Attributes:
        are_lost: Whether this process was forked from one that had them: the library would wait for them forever.
    """

    def __init__(self) -> None:
        self._are_started = False
        self.are_lost = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._lose)

    def start(self) -> None:
        """Note that the library is used from now on."""
        self._are_started = True

    def _lose(self) -> None:
        self.are_lost = self._are_started

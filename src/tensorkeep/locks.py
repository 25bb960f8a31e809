"""Locks of what is open, for threads that read it, and for children that were forked while they did."""

from __future__ import annotations

import os
import threading


class ReadLock:
    """A lock that is free in a forked child: the thread that held it is not there.

    It must only guard what is valid at any time, such as a cache that is filled by one assignment.
    """

    __slots__ = ("_generation", "_lock")

    generation = 0
    """How often the processes from which this one was forked were forked."""

    _renewing = threading.Lock()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._generation = ReadLock.generation

    def __enter__(self) -> None:
        if self._generation != ReadLock.generation:
            self._renew()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _renew(self) -> None:
        with ReadLock._renewing:
            if self._generation != ReadLock.generation:
                self._lock = threading.Lock()
                self._generation = ReadLock.generation


def _count_fork() -> None:
    ReadLock.generation += 1
    ReadLock._renewing = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)

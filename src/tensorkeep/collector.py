"""The cyclic garbage collector, paused while many objects are made at once.

Every few hundred new containers it walks all live objects, which can double the time to make 20,000 tensors. Pauses
are short: nothing is read or written in one.
"""

from __future__ import annotations

import gc
import os


class PausedCollector:
    """Turns the collector off in a `with` block, and restores it afterwards.

    A class, not a generator: the StopIteration that ends a generator would trigger a collection of everything that
    the block has made.
    """

    __slots__ = ("_was_enabled",)

    n_active = 0
    """Number of blocks, in all threads, that will turn the collector on again."""

    def __enter__(self) -> None:
        self._was_enabled = gc.isenabled()
        PausedCollector.n_active += self._was_enabled
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._was_enabled:
            PausedCollector.n_active -= 1
            gc.enable()


def _resume_after_fork() -> None:
    """Turn the collector on in a child that was forked while another thread had paused it."""
    if PausedCollector.n_active:
        PausedCollector.n_active = 0
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_resume_after_fork)

"""The cyclic garbage collector, paused while many objects are made at once.

Every few hundred new containers it walks all that live; making 20,000 tensors costs up to twice as much with it.
Pauses are short: nothing is read or written in one.
"""

from __future__ import annotations

import gc
import os


class PausedCollector:
    """Keeps the collector off in a `with` block, and leaves it as it was.

    A class, not a generator: the exception that ends a generator would at once set off a collection of all that the
    block has made.
    """

    __slots__ = ("_was_enabled",)

    n_active = 0
    """Blocks, in all threads, at whose end the collector goes on."""

    def __enter__(self) -> None:
        self._was_enabled = gc.isenabled()
        PausedCollector.n_active += self._was_enabled
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._was_enabled:
            PausedCollector.n_active -= 1
            gc.enable()


def _go_on_after_fork() -> None:
    """Turn the collector on in a child that was forked while another thread had paused it."""
    if PausedCollector.n_active:
        PausedCollector.n_active = 0
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_go_on_after_fork)

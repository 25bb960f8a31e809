"""The cyclic garbage collector, paused while many objects are made at once.

Every few hundred new containers it walks all that live; making 20,000 tensors costs up to twice as much with it.
"""

from __future__ import annotations

import gc

__all__ = ["PausedCollector"]


class PausedCollector:
    """Keeps the collector off in a `with` block, and leaves it as it was.

    A class, not a generator: the exception that ends a generator would at once set off a collection of all that the
    block has made.
    """

    __slots__ = ("_was_enabled",)

    def __enter__(self) -> None:
        """Pause."""
        self._was_enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        """Go on as before."""
        if self._was_enabled:
            gc.enable()

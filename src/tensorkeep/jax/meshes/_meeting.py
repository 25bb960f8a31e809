"""Where the processes of a job meet: for each save or decision a place of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Final

import jax

from tensorkeep.checkpoint import Rendezvous
from tensorkeep.errors import UnsupportedError
from tensorkeep.jax.meshes._coordination import CoordinationService

TIMEOUT_S: Final = 300.0
"""Seconds without a sign of life from any process after which the others give up."""

_numbers = count()
"""Numbers of the meetings of this process; all processes begin the same ones in the same order."""


def meet(timeout_s: float) -> tuple[CoordinationService, Rendezvous]:
    """Return the place of the next meeting, and this process as a part of it."""
    if not (isinstance(timeout_s, int | float) and timeout_s > 0):
        raise UnsupportedError("timeout_s is invalid", expected="seconds, more than 0", found=f"{timeout_s!r:.100}")
    store = CoordinationService(f"tensorkeep/{next(_numbers)}")
    return store, Rendezvous(store, jax.process_index(), jax.process_count(), timeout_s)


def decide_together(decide: Callable[[Callable[[], None]], int], *, timeout_s: float = TIMEOUT_S) -> int:
    """Return a number that the first process decides on; called by all. `decide` gets a function to show it lives."""
    _, ranks = meet(timeout_s)
    if ranks.rank:
        return int(ranks.get(str(ranks.rank)))
    try:
        decided = decide(ranks.beat)
    except BaseException as error:
        with suppress(Exception):  # the service may be gone
            ranks.fail(error)
        raise
    for rank in range(1, ranks.n_ranks):
        ranks.put(str(rank), str(decided).encode())
    return decided

"""The leaves of a pytree, also of one that cannot be saved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from tensorkeep.jax.trees._branches import Branches
from tensorkeep.limits import MAX_STATE_DEPTH


def leaves_of(tree: Any) -> Iterator[Any]:
    """Yield the leaves of a tree, up to what is nested too deep; what cannot be taken apart is one too."""
    branches = Branches()
    waiting = [iter([tree])]
    while waiting and len(waiting) <= MAX_STATE_DEPTH + 1:
        for value in waiting[-1]:
            branch = None
            with suppress(Exception):  # of a class that cannot be taken apart: `capture` raises it
                branch = branches.of(value)
            if branch is not None:
                waiting.append(iter(branch.children))
                break
            yield value
        else:
            waiting.pop()

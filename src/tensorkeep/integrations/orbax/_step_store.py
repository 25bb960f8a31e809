"""The store of a manager, in which all processes do everything together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jax

from tensorkeep.jax import CheckpointStore
from tensorkeep.jax.meshes import meet

Contents: TypeAlias = tuple[Any, Mapping[str, Any], Mapping[str, str]]
"""What a step holds: plain nested data, metrics, and metadata."""


class StepStore(CheckpointStore):
    """A store whose `save` takes a function that makes the contents: what fails in one process fails in all."""

    def _contents(
        self,
        state: Any,
        metrics: Mapping[str, Any] | None,  # noqa: ARG002 - the function's count
        metadata: Mapping[str, str] | None,  # noqa: ARG002
    ) -> Contents:
        make: Callable[[], Contents] = state
        return make()

    def decide(
        self, function: str, step: int | None, choose: Callable[[], int], *, before: Callable[[], None]
    ) -> int:
        """Return what the first process chooses for a call that all make with one step, after `before` in each."""
        if jax.process_count() == 1:
            before()
            return choose()
        with meet() as meeting:
            before()
            call = {"function": function, "directory": str(self.root), "step": f"{step!r:.100}"}
            return meeting.decide(call, lambda _: choose())

"""Which steps are kept. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

__all__ = ["Mode", "Retention", "best_steps"]

Mode = Literal["min", "max"]


class Retention(msgspec.Struct, frozen=True):
    """The rules; a step that any of them names is kept.

    Attributes:
        keep_last: How many of the highest steps; None for all.
        keep_best: How many of those with the best metric; None for all that have it.
        keep_every: Those that are multiples of this; None for no such rule.
        monitor: The metric that says what is best.
        mode: Whether the least or the greatest is best.
    """

    keep_last: int | None
    keep_best: int | None
    keep_every: int | None
    monitor: str
    mode: Mode

    def to_remove(self, steps: Mapping[int, Mapping[str, float]], saved: int) -> list[int]:
        """Return the steps that no rule keeps.

        Args:
            steps: Whole step to its metrics.
            saved: The step that was just saved, which is kept whatever the rules say; so is the highest.

        Returns:
            Steps, ascending.
        """
        if self.keep_last is None:
            return []
        ascending = sorted(steps)
        kept = {saved, *ascending[-max(self.keep_last, 1) :]}
        ranked = best_steps(steps, self.monitor, self.mode)
        kept.update(ranked if self.keep_best is None else ranked[: self.keep_best])
        if self.keep_every is not None:
            kept.update(step for step in ascending if step % self.keep_every == 0)
        return [step for step in ascending if step not in kept]

    def damaged_to_remove(self, damaged: Iterable[int], whole: Iterable[int]) -> list[int]:
        """Return damaged steps that nobody needs: as many whole ones as are kept at least came after them.

        Args:
            damaged: Steps that cannot be read.
            whole: Those that can.

        Returns:
            Steps, ascending.
        """
        if self.keep_last is None:
            return []
        newest = sorted(whole)[-max(self.keep_last, 1) :]
        is_enough = len(newest) == max(self.keep_last, 1)
        return [step for step in sorted(damaged) if is_enough and step < newest[0]]


def best_steps(steps: Mapping[int, Mapping[str, float]], monitor: str, mode: Mode) -> list[int]:
    """Return the steps that have a metric, the best first; of equal ones that which came first.

    Args:
        steps: Step to its metrics.
        monitor: The metric; NaN counts as none.
        mode: Whether the least or the greatest is best.
    """
    measured = {step: metrics[monitor] for step, metrics in steps.items() if monitor in metrics}
    sign = 1 if mode == "min" else -1
    return sorted(
        (step for step, value in measured.items() if not math.isnan(value)), key=lambda it: (sign * measured[it], it)
    )

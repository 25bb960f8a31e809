"""Which steps are kept. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

import msgspec

from tensorkeep.store._record import StepRecord

Mode = Literal["min", "max"]


class Retention(msgspec.Struct, frozen=True):
    """The rules; a step that any of them names is kept.

    Attributes:
        keep_last: How many of those that were saved last, whatever their numbers; None for all.
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

    def to_remove(self, whole: Collection[StepRecord], saved: int) -> list[int]:
        """Return the steps that no rule keeps.

        A run that went back to an earlier step saves lower numbers than it did before. So what comes last is told by
        the time: the steps that it has left behind go, and not those that it saves now.
        """
        if self.keep_last is None:
            return []
        by_time = [record.step for record in sorted(whole, key=saving_order)]
        kept = {saved, *by_time[-max(self.keep_last, 1) :]}
        ranked = best_steps({record.step: record.metrics for record in whole}, self.monitor, self.mode)
        kept.update(ranked if self.keep_best is None else ranked[: self.keep_best])
        if self.keep_every is not None:
            kept.update(step for step in by_time if step % self.keep_every == 0)
        return sorted(step for step in by_time if step not in kept)

    def is_blind_to(self, metrics: Mapping[str, float]) -> bool:
        """Say whether a step with metrics can go as if it had none, since none of them is the monitored one."""
        is_used = self.keep_best != 0 and self.keep_last is not None
        return bool(metrics) and is_used and self.monitor not in metrics

    def damaged_to_remove(self, damaged: Iterable[int], whole: Iterable[int]) -> list[int]:
        """Return damaged steps that nobody needs: as many whole ones as are kept at least have higher numbers.

        When they were saved is not known, as nothing that is damaged can be relied on.
        """
        if self.keep_last is None:
            return []
        newest = sorted(whole)[-max(self.keep_last, 1) :]
        is_enough = len(newest) == max(self.keep_last, 1)
        return [step for step in sorted(damaged) if is_enough and step < newest[0]]


def saving_order(record: StepRecord) -> tuple[str, int]:
    """Return what steps are sorted by, from the one that was saved first to the one that was saved last."""
    return record.saved_at, record.step


def best_steps(steps: Mapping[int, Mapping[str, float]], monitor: str, mode: Mode) -> list[int]:
    """Return the steps that have a metric, the best first; of equal ones that which came first."""
    measured = {step: metrics[monitor] for step, metrics in steps.items() if monitor in metrics}
    sign = 1 if mode == "min" else -1
    return sorted(
        (step for step, value in measured.items() if not math.isnan(value)), key=lambda it: (sign * measured[it], it)
    )

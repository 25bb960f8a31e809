"""Rules for which steps are kept. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

import msgspec

from tensorkeep.store.places import StepRecord

Mode = Literal["min", "max"]


class Retention(msgspec.Struct, frozen=True):
    """Rules for which steps are kept; one rule is enough to keep a step.

    Attributes:
        keep_last: How many of the last saved steps to keep, whatever their numbers; None for all.
        keep_best: How many of the steps with the best metric to keep; None for all that have it.
        keep_every: Keep multiples of this; None for no such rule.
        monitor: Name of the metric that decides which is best.
        mode: Whether its minimum or its maximum is best.
    """

    keep_last: int | None = 3
    keep_best: int | None = 1
    keep_every: int | None = None
    monitor: str = "valid_loss"
    mode: Mode = "min"

    def __str__(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__)

    def keeps_all_of(self, other: Retention) -> bool:
        """Say whether these rules keep every step that others keep, whatever the steps."""
        if self.keep_last is None or other.keep_last is None:
            return self.keep_last is None
        same_metric = (self.monitor, self.mode) == (other.monitor, other.mode)
        return (
            self.keep_last >= other.keep_last
            and (other.keep_best == 0 or (same_metric and _at_least(self.keep_best, other.keep_best)))
            and (
                other.keep_every is None or (self.keep_every is not None and other.keep_every % self.keep_every == 0)
            )
        )

    def to_remove(self, whole: Collection[StepRecord], saved: int | None) -> list[int]:
        """Return the whole steps that no rule keeps, and that are not the one just saved.

        A run that went back to an earlier step saves lower numbers than before. So "last" means saved last: the
        abandoned steps are removed, and not the new ones.
        """
        if self.keep_last is None:
            return []
        by_time = [record.step for record in sorted(whole, key=saving_order)]
        kept: set[int | None] = {saved, *by_time[-max(self.keep_last, 1) :]}
        ranked = best_steps({record.step: record.metrics for record in whole}, self.monitor, self.mode)
        kept.update(ranked if self.keep_best is None else ranked[: self.keep_best])
        if self.keep_every is not None:
            kept.update(step for step in by_time if step % self.keep_every == 0)
        return sorted(step for step in by_time if step not in kept)

    def is_blind_to(self, metrics: Mapping[str, float]) -> bool:
        """Say whether a step that has metrics lacks the one that the rules need."""
        is_used = self.keep_best != 0 and self.keep_last is not None
        return bool(metrics) and is_used and self.monitor not in metrics

    def damaged_to_remove(self, damaged: Iterable[int], whole: Iterable[int]) -> list[int]:
        """Return damaged steps for which there are `keep_last` whole steps with higher numbers.

        Numbers decide here, since the time in a damaged step cannot be relied on.
        """
        if self.keep_last is None:
            return []
        newest = sorted(whole)[-max(self.keep_last, 1) :]
        is_enough = len(newest) == max(self.keep_last, 1)
        return [step for step in sorted(damaged) if is_enough and step < newest[0]]


def _at_least(number: int | None, other: int | None) -> bool:
    """Compare two rules in which None means all."""
    return number is None or (other is not None and number >= other)


def saving_order(record: StepRecord) -> tuple[str, int]:
    """Return the sort key of steps, from the first saved to the last."""
    return record.saved_at, record.step


def best_steps(steps: Mapping[int, Mapping[str, float]], monitor: str, mode: Mode) -> list[int]:
    """Return the steps that have a metric, the best first; of equal ones, the lowest number first."""
    measured = {step: metrics[monitor] for step, metrics in steps.items() if monitor in metrics}
    sign = 1 if mode == "min" else -1
    numbers = (step for step, value in measured.items() if not math.isnan(value))
    return sorted(numbers, key=lambda step: (sign * measured[step], step))

"""The results of a case, and whether it met its target."""

from __future__ import annotations

from datetime import datetime
from statistics import quantiles
from typing import Literal

import msgspec

from benchmarks.case import AtLeast, Case, Contender
from benchmarks.machine import Machine

__all__ = ["CaseResult", "Memory", "Quartiles", "Verdict", "quartiles_of"]

Verdict = Literal["met", "narrowly met", "narrowly missed", "missed"]


class Memory(msgspec.Struct, frozen=True):
    """The cost of one run of a contender in a fresh process.

    Attributes:
        extra_nbytes: Peak resident bytes beyond those before.
        disk_nbytes: Bytes read from disk.
    """

    extra_nbytes: int
    disk_nbytes: int


class Quartiles(msgspec.Struct, frozen=True):
    """The quartiles of some values.

    Attributes:
        low: The lower quartile.
        middle: The median.
        high: The upper quartile.
    """

    low: float
    middle: float
    high: float


class CaseResult(msgspec.Struct, frozen=True):
    """The results of a case.

    Attributes:
        case: The case.
        times_s: Contender's name to seconds, one value per round.
        memory: Contender's name to its cost; empty if not meaningful.
        machine: What it was measured on.
        when: The time of measurement.
    """

    case: Case
    times_s: dict[str, list[float]]
    memory: dict[str, Memory]
    machine: Machine
    when: datetime

    def time_s(self, contender: Contender) -> float:
        """Return a contender's median time in seconds."""
        return self.quartiles_s(contender).middle

    def quartiles_s(self, contender: Contender) -> Quartiles:
        """Return the quartiles of a contender's times in seconds."""
        return quartiles_of(self.times_s[contender.name])

    def ratio_to(self, other: Contender) -> Quartiles:
        """Compare round by round: the other's time divided by ours."""
        ours = self.times_s[self.case.ours.name]
        return quartiles_of([b / a for a, b in zip(ours, self.times_s[other.name], strict=True)])

    def excess_over(self, other: Contender) -> Quartiles:
        """Compare round by round: our time minus the other's, in seconds."""
        ours = self.times_s[self.case.ours.name]
        return quartiles_of([a - b for a, b in zip(ours, self.times_s[other.name], strict=True)])

    @property
    def takes_too_much(self) -> bool:
        """Whether tensorkeep takes more memory than it may."""
        limit = self.case.max_extra_nbytes
        taken = self.memory.get(self.case.ours.name)
        return limit is not None and taken is not None and taken.extra_nbytes > limit

    @property
    def other_shortfalls(self) -> list[tuple[str, float, float]]:
        """The name, the median ratio and the target of each further peer whose target is not met."""
        found = []
        for peer in self.case.peers[1:]:
            target = self.case.other_targets.get(peer.name)
            ratio = self.ratio_to(peer).middle
            if target is not None and ratio < target.ratio:
                found.append((peer.name, ratio, target.ratio))
        return found

    @property
    def verdict(self) -> Verdict | None:
        """Whether the median meets the target; narrowly, if the target is between the quartiles."""
        target = self.case.target
        if target is None:
            return None
        peer = self.case.peers[0]
        if isinstance(target, AtLeast):
            found = self.ratio_to(peer)
            worse, middle, better = (ratio >= target.ratio for ratio in (found.low, found.middle, found.high))
        else:
            found = self.excess_over(peer)
            worse, middle, better = (excess <= target.seconds for excess in (found.high, found.middle, found.low))
        if middle:
            return "met" if worse else "narrowly met"
        return "narrowly missed" if better else "missed"


def quartiles_of(values: list[float]) -> Quartiles:
    """Return the quartiles of values."""
    if len(values) < 2:
        return Quartiles(values[0], values[0], values[0])
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return Quartiles(low, middle, high)

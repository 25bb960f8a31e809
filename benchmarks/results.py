"""What came out of a case, and whether the target was met."""

from __future__ import annotations

from statistics import quantiles
from typing import Literal

import msgspec

from benchmarks.case import AtLeast, Case, Contender

__all__ = ["CaseResult", "Memory", "Quartiles", "Verdict", "quartiles_of"]

Verdict = Literal["met", "level", "missed"]


class Memory(msgspec.Struct, frozen=True):
    """What one run of a contender took, in a process of its own.

    Attributes:
        extra_nbytes: Resident bytes at the peak, over those before.
        disk_nbytes: Bytes that the disk had to give.
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
    """What came out of a case.

    Attributes:
        case: The case.
        times_s: Contender's name to seconds, one value per round.
        memory: Contender's name to what it took; empty where that says nothing.
    """

    case: Case
    times_s: dict[str, list[float]]
    memory: dict[str, Memory]

    def time_s(self, contender: Contender) -> float:
        """Return a contender's median time in seconds."""
        return self.quartiles_s(contender).middle

    def quartiles_s(self, contender: Contender) -> Quartiles:
        """Return the quartiles of a contender's times in seconds."""
        return quartiles_of(self.times_s[contender.name])

    def ratio_to(self, other: Contender) -> Quartiles:
        """Compare round by round: the other's time over ours."""
        ours = self.times_s[self.case.ours.name]
        return quartiles_of([b / a for a, b in zip(ours, self.times_s[other.name], strict=True)])

    def excess_over(self, other: Contender) -> Quartiles:
        """Compare round by round: our time less the other's, in seconds."""
        ours = self.times_s[self.case.ours.name]
        return quartiles_of([a - b for a, b in zip(ours, self.times_s[other.name], strict=True)])

    @property
    def verdict(self) -> Verdict | None:
        """Whether the target was met: by the median; `"level"` where only the better quartile meets it."""
        target = self.case.target
        if target is None:
            return None
        peer = self.case.peers[0]
        if isinstance(target, AtLeast):
            found = self.ratio_to(peer)
            return _judge(found.middle >= target.ratio, found.high >= target.ratio)
        found = self.excess_over(peer)
        return _judge(found.middle <= target.seconds, found.low <= target.seconds)


def quartiles_of(values: list[float]) -> Quartiles:
    """Sum values up by quartiles."""
    if len(values) < 2:
        return Quartiles(values[0], values[0], values[0])
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return Quartiles(low, middle, high)


def _judge(by_median: bool, by_quartile: bool) -> Verdict:
    if by_median:
        return "met"
    return "level" if by_quartile else "missed"

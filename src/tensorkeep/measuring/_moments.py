"""Mean, spread and extremes of numbers that come in parts. Pure."""

from __future__ import annotations

from math import sqrt

import numpy as np

from tensorkeep.measuring._bins import Numbers


class Moments:
    """The first two moments of the numbers so far, without the cancellation of sums of squares.

    Attributes:
        n: How many numbers there are.
        min: The smallest; None without numbers.
        max: The largest.
        mean: Their mean.
        spread: Sum of their squared distances from the mean.
    """

    def __init__(self) -> None:
        self.n = 0
        self.min: float | int | None = None
        self.max: float | int | None = None
        self.mean = 0.0
        self.spread = 0.0

    def add(self, numbers: Numbers, low: float, high: float) -> None:
        """Take some numbers, and the smallest and largest of them."""
        part = Moments()
        part.n, part.min, part.max = len(numbers), low, high
        part.mean = float(np.add.reduce(numbers)) / part.n
        distances = numbers - part.mean
        part.spread = float(np.einsum("i,i->", distances, distances))  # not `dot`, which starts threads of its own
        self.merge(part)

    def merge(self, other: Moments) -> None:
        """Take the numbers of another."""
        if other.min is None or other.max is None:
            return
        self.min = other.min if self.min is None else min(self.min, other.min)
        self.max = other.max if self.max is None else max(self.max, other.max)
        n = self.n + other.n
        gap = other.mean - self.mean
        self.spread += other.spread + gap * gap * (self.n / n * other.n)
        self.mean += gap * (other.n / n)
        self.n = n

    @property
    def std(self) -> float:
        """Standard deviation of the population."""
        return sqrt(self.spread / self.n)

    @property
    def norm(self) -> float:
        """Root of the sum of squares."""
        return sqrt(self.spread + self.n * self.mean * self.mean)

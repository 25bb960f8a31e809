"""Benchmark cases as declarations; the harness does the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["AtLeast", "AtMostOver", "Case", "Contender", "Place"]


class Place(msgspec.Struct, frozen=True):
    """Where the files of a run go, and how large they are.

    Attributes:
        folder: A directory on a disk.
        tmpfs: A directory in memory.
        quick: Whether to use small sizes, only to check that everything runs.
    """

    folder: Path
    tmpfs: Path
    quick: bool

    def size(self, full: int, quick: int) -> int:
        """Return the size that fits the run."""
        return quick if self.quick else full


class Contender(msgspec.Struct, frozen=True):
    """One way to do what a case asks for.

    Attributes:
        name: Its name in the report.
        run: Does it, timed. Its result is dropped after the clock has stopped.
    """

    name: str
    run: Callable[[Any], Any]


class AtLeast(msgspec.Struct, frozen=True):
    """A target: the minimum of the peer's time divided by ours."""

    ratio: float


class AtMostOver(msgspec.Struct, frozen=True):
    """A target: the maximum of our time minus the peer's, in seconds."""

    seconds: float


def _nothing(_: Any) -> None:
    pass


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured.

    Attributes:
        name: `group/case`; the group is the module.
        title: What is done, for the report.
        prepare: Makes the files and values that the contenders work on, and returns their argument.
            Called in every worker process, so it leaves existing files alone.
        ours: tensorkeep's way.
        peers: Other ways; the target refers to the first.
        limits: The machine's limits; the report's first table shows the first.
        target: How much better than the first peer it must be, or None.
        other_targets: The same for other peers, by name.
        max_extra_nbytes: Maximum resident bytes at the peak, beyond those before; None for no maximum.
        before: Called before each contender of each round, with the clock stopped.
        after: The same, afterwards.
        rounds: How many times each contender runs.
        has_memory: Whether a contender's memory is meaningful.
        remark: A note for the reader.
        company: In a quick run, cases of equal company share a process; some libraries crash beside others.
    """

    name: str
    title: str
    prepare: Callable[[Place], Any]
    ours: Contender
    peers: tuple[Contender, ...]
    limits: tuple[Contender, ...] = ()
    target: AtLeast | AtMostOver | None = None
    other_targets: Mapping[str, AtLeast] = {}
    max_extra_nbytes: int | None = None
    before: Callable[[Any], None] = _nothing
    after: Callable[[Any], None] = _nothing
    rounds: int = 15
    has_memory: bool = True
    remark: str = ""
    company: str = ""

    @property
    def contenders(self) -> tuple[Contender, ...]:
        """All contenders, ours first."""
        return (self.ours, *self.peers, *self.limits)

    @property
    def group(self) -> str:
        """The module that holds the case."""
        return self.name.partition("/")[0]
